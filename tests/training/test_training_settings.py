import ir_measures
import numpy as np
import pytest

from pyterrier_longdoc.training import Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"epochs": 1.5}, "epochs"),
        ({"negatives": 0}, "negatives"),
        ({"lr": -1e-3}, "lr must be a finite number of at least 0"),
        ({"lr": float("nan")}, "lr"),
        ({"lr": True}, "lr"),
        ({"clip_norm": 0}, "clip_norm must be above 0, or None"),
        ({"min_label": "1"}, "min_label must be a finite number, got '1'"),
        ({"min_label": float("-inf")}, "min_label"),
        ({"loss": "softmax"}, "loss must be one of 'hinge', 'ranknet', 'listwise', 'margin_mse', got 'softmax'"),
        ({"schedule": "cosine"}, "schedule"),
        ({"precision": "float16"}, "precision must be one of 'float32', 'bfloat16'"),
        ({"measure": "nDGC@10"}, "nDGC@10"),
        ({"measure": []}, "measure"),
    ],
)
def test_bad_values_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings.of(**settings)


def test_unknown_settings_are_named_with_the_known_ones():
    with pytest.raises(TypeError, match="no setting 'learning_rate'.*representation_lr"):
        Settings.of(learning_rate=1e-3)


def test_numbers_of_numpy_are_as_good_as_plain_ones():
    given = {"lr": np.float32(0.5), "batch_size": np.int64(3), "min_label": np.int8(2)}
    assert Settings(**given).to_dict() == Settings(lr=0.5, batch_size=3, min_label=2).to_dict()


def test_group_size_depends_on_the_loss():
    assert Settings().group_size == 2
    assert Settings(loss="listwise").group_size == 8
    assert Settings(loss="listwise", negatives=3).group_size == 4
    assert Settings(loss=lambda scores, teacher: scores.mean()).group_size == 2


def test_measures_are_names_or_objects():
    assert Settings(measure=ir_measures.RR @ 10).measures == [ir_measures.RR @ 10]
    assert Settings(measure=["AP(rel=2)", ir_measures.R @ 5]).measures == [ir_measures.AP(rel=2), ir_measures.R @ 5]


def test_learning_rate_warms_up_and_goes_down():
    constant = Settings(warmup_steps=4)
    assert [constant.rate_factor(step, 8) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    linear = Settings(warmup_steps=2, schedule="linear")
    assert [linear.rate_factor(step, 6) for step in range(6)] == [0.5, 1, 1, 0.75, 0.5, 0.25]
    assert Settings(schedule="linear").rate_factor(0, 5) == 1
