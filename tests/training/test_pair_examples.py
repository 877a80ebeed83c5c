"""Pairs as a task of the trainer: which negatives count, losses by hand, and trainings that go on."""

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_longdoc.pairs import as_pairs
from pyterrier_longdoc.training.pair_examples import PairExamples, PairSettings
from tests.pair_task import LEARN, encoder, pairs
from tests.training.toy_task import weights_equal


def examples(frame, **settings):
    return PairExamples.of(encoder(), as_pairs(frame), PairSettings.of(**settings))


def by_name(*rows):
    """Pairs of documents that are one word each."""
    return pd.DataFrame(rows, columns=["text_a", "text_b", "label"])


ROWS = by_name(
    ("w1", "w11", 1), ("w1", "w12", 0), ("w1", "w13", 0), ("w2", "w21", 1), ("w2", "w22", 1), ("w3", "w31", 0)
)


def cosines(own, queries, documents):
    return own.encode_queries(queries) @ own.encode_docs(documents).T


def test_the_binary_loss_by_hand():
    own, task = encoder(), examples(ROWS)
    own.model.train()
    loss, more = task.loss(own, own.model, 0, np.array([0, 1, 3]), own.budget())
    found = [cosines(own, [a], [b])[0, 0] for a, b in (("w1", "w11"), ("w1", "w12"), ("w2", "w21"))]
    match = 1 / (1 + np.exp(-(6 * np.array(found) - 3)))
    expected = -np.mean([np.log(match[0]), np.log(1 - match[1]), np.log(match[2])])
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert more["accuracy_tr"].item() == pytest.approx(np.mean([match[0] > 0.5, match[1] < 0.5, match[2] > 0.5]))


def test_the_in_batch_loss_by_hand():
    """Each partner against all others of the batch, but never against another partner of the same source."""
    own, task = encoder(), examples(ROWS, loss="in_batch", negatives=2)
    assert len(task) == 3
    own.model.train()
    loss, _ = task.loss(own, own.model, 0, np.array([0, 1, 2]), own.budget())
    rivals = {
        ("w1", "w11"): ["w21", "w22", "w12", "w13"],
        ("w2", "w21"): ["w11", "w12", "w13"],
        ("w2", "w22"): ["w11", "w12", "w13"],
    }
    terms = []
    for (source, partner), others in rivals.items():
        logits = 6 * cosines(own, [source], [partner, *others])[0] - 3
        terms.append(np.log(np.exp(logits).sum()) - logits[0])
    assert loss.item() == pytest.approx(np.mean(terms), rel=1e-5)


def test_no_rival_is_the_source_itself_or_matches_it_the_other_way_round():
    """a matches b and c matches a: in a batch of both, b is the only rival of c, and a has none but its negative."""
    rows = [("w1", "w2", 1), ("w1", "w4", 0), ("w3", "w1", 1), ("w5", "w3", 1)]
    task = examples(by_name(*rows), loss="in_batch")
    grid, allowed = task._grid(0, np.arange(3))
    assert grid.shape == (3, 4, 2)  # partners w2, w1, w3 and the negative w4
    assert allowed.tolist() == [[True, False, False, True], [True, True, False, True], [True, True, True, True]]
    labelled = examples(by_name(*rows, ("w1", "w3", 0)), loss="in_batch", negatives=2)
    assert labelled._grid(0, np.arange(3))[1][0].tolist() == [True, False, True, True, True]


def test_hard_negatives_are_drawn_anew_in_each_epoch():
    task = examples(ROWS, loss="in_batch")
    drawn = {int(task._hard_negatives(epoch, 0)[0]) for epoch in range(20)}
    assert len(drawn) == 2
    assert list(task._hard_negatives(3, 0)) == list(task._hard_negatives(3, 0))
    assert not len(task._hard_negatives(0, 1))  # this source has none


def test_every_epoch_has_every_example_in_another_order():
    task = examples(pairs(30))
    assert sorted(task.order(0)) == sorted(task.order(1)) == list(range(30))
    assert list(task.order(0)) != list(task.order(1))
    assert list(task.order(1)) == list(examples(pairs(30)).order(1))


def test_the_fingerprint_follows_the_pairs():
    frames = (ROWS, ROWS.iloc[:5], ROWS.assign(label=ROWS["label"][::-1].array))
    prints = {examples(frame).fingerprint() for frame in frames}
    assert len(prints) == 3
    assert examples(ROWS).fingerprint() in prints


@pytest.mark.parametrize(
    ("rows", "loss", "message"),
    [
        (ROWS.assign(label=1), "binary", "6 of 6 training pairs match.*some that do and some that do not"),
        (ROWS.assign(label=0), "binary", "0 of 6 training pairs match"),
        (ROWS.assign(label=0), "in_batch", "0 of 6 training pairs match.*'in_batch' needs some that do"),
    ],
)
def test_nothing_to_learn_from(rows, loss, message):
    with pytest.raises(ValueError, match=message):
        examples(rows, loss=loss)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"loss": "hinge"}, ValueError, "loss must be one of 'binary', 'in_batch'"),
        ({"measure": "nDCG@10"}, ValueError, "measure must be one of 'AUC', 'accuracy', 'F1'"),
        ({"loss": "in_batch", "accumulate": 2}, ValueError, "accumulate must be 1"),
        ({"epoch": 3}, TypeError, "no setting 'epoch'"),
        ({"min_label": 2, "graded": True}, TypeError, "pairs has no setting 'graded', 'min_label'"),
        ({"batch_size": 0}, ValueError, "batch_size must be"),
    ],
)
def test_unfit_settings(settings, error, message):
    with pytest.raises(error, match=message):
        encoder().fit_pairs(pairs(8), verbose=False, **settings)


def test_validation_pairs_need_both_labels():
    with pytest.raises(ValueError, match="both kinds are needed"):
        encoder().fit_pairs(pairs(8), pairs(8).assign(label=1), verbose=False)


def test_the_same_seed_gives_the_same_weights():
    first, again, other = (encoder().fit_pairs(pairs(32), seed=seed, **{**LEARN, "epochs": 1}) for seed in (0, 0, 1))
    assert weights_equal(first, again)
    assert not weights_equal(first, other)


def test_accumulation_gives_the_same_as_one_large_batch():
    first, parts = (encoder().fit_pairs(pairs(32), accumulate=count, **{**LEARN, "epochs": 1}) for count in (1, 4))
    for one, other in zip(first.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("loss", ["binary", "in_batch"])
def test_an_interrupted_training_goes_on_bit_for_bit(tmp_path, monkeypatch, loss):
    run = {**LEARN, "epochs": 2, "loss": loss, "save_every": 1}
    whole = encoder().fit_pairs(pairs(48), pairs(20, seed=1), **run)
    compute, calls = PairExamples.loss, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return compute(self, *arguments)

    monkeypatch.setattr(PairExamples, "loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encoder().fit_pairs(pairs(48), pairs(20, seed=1), output_dir=tmp_path / "run", **run)
    monkeypatch.undo()
    resumed = encoder().fit_pairs(pairs(48), pairs(20, seed=1), resume=tmp_path / "run", **run)
    assert weights_equal(resumed, whole)
    with pytest.raises(ValueError):
        encoder().fit_pairs(pairs(46), pairs(20, seed=1), resume=tmp_path / "run", **run)


@pytest.mark.parametrize("measure", ["AUC", "accuracy", "F1"])
def test_the_best_weights_on_the_validation_pairs_are_kept(measure):
    validation = pairs(40, seed=1)
    own = encoder().fit_pairs(pairs(48), validation, measure=measure, **LEARN)
    assert list(own.history.columns[5:8])[0] == measure
    best = own.evaluate_pairs(validation, validation, best="F1" if measure == "F1" else "accuracy")[measure]
    assert best == pytest.approx(own.history[measure].max())


def test_long_documents_are_cut_for_training_only():
    own = encoder()
    with pytest.warns(UserWarning, match="training documents are longer than train_doc_tokens=5"):
        own.fit_pairs(pairs(8), train_doc_tokens=5, verbose=False, epochs=1)
    assert own.max_doc_tokens is None
