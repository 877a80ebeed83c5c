import sys

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch

from pyterrier_longdoc import KNRM, TK, TKL, ConvKNRM
from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.training import Settings
from pyterrier_longdoc.training.examples import collect_examples
from pyterrier_longdoc.training.state import Folder
from tests.training.toy_task import results, task, tiny_ranker, weights_equal

QUICK = {"epochs": 2, "batch_size": 8, "verbose": False}


@pytest.fixture(scope="module")
def frames():
    return task()


def ndcg(ranker, res, qrels):
    return pt.Evaluate(ranker(res), qrels, metrics=["ndcg_cut_10"])["ndcg_cut_10"]


@pytest.mark.parametrize("ranker_class", [TKL, TK])
def test_a_ranker_learns(frames, ranker_class):
    ranker = tiny_ranker(ranker_class)
    torch.nn.init.zeros_(ranker.model.dense.weight)  # the task is so easy that its start value solves it
    test = results("x", 2)
    before = ndcg(ranker, *test)
    returned = ranker.fit(*frames, epochs=8, batch_size=4, lr=3e-3, verbose=False)
    assert returned is ranker
    assert ranker.history["loss"].iloc[-1] < ranker.history["loss"].iloc[0] / 2
    assert ndcg(ranker, *test) > before + 0.2
    assert not ranker.model.training


@pytest.mark.parametrize("ranker_class", [KNRM, ConvKNRM])
def test_losses_fall_in_the_other_rankers(frames, ranker_class):
    losses = tiny_ranker(ranker_class).fit(*frames, epochs=5, batch_size=4, lr=3e-3, verbose=False).history["loss"]
    assert losses.is_monotonic_decreasing


@pytest.mark.parametrize("loss", ["ranknet", "listwise", "margin_mse"])
def test_every_loss_trains(frames, loss):
    res, qrels, *_ = frames
    relevant = res["docno"].isin(qrels["docno"])
    history = tiny_ranker(TK).fit(
        res.assign(teacher_score=3.0 * relevant), qrels, loss=loss, epochs=5, batch_size=8, lr=3e-3, verbose=False
    ).history
    assert history["loss"].iloc[-1] < history["loss"].iloc[0]


def test_a_loss_may_be_a_function(frames):
    seen = []

    def loss(scores, teacher):
        seen.append((tuple(scores.shape), teacher))
        return torch.relu(1 - scores[:, :1] + scores[:, 1:]).mean()

    own = tiny_ranker().fit(*frames[:2], loss=loss, negatives=3, **QUICK)
    named = tiny_ranker().fit(*frames[:2], loss="hinge", negatives=3, **QUICK)
    assert seen[0] == ((8, 4), None)
    assert weights_equal(own, named)
    with pytest.raises(ValueError, match=r"one number.*\(8, 2\)"):
        tiny_ranker().fit(*frames[:2], loss=lambda scores, teacher: scores, **QUICK)


def test_the_same_seed_gives_the_same_weights(frames):
    torch.manual_seed(1)
    one = tiny_ranker().fit(*frames[:2], seed=5, **QUICK)
    np.random.seed(1)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    two = tiny_ranker().fit(*frames[:2], seed=5, **QUICK)
    other = tiny_ranker().fit(*frames[:2], seed=6, **QUICK)
    assert weights_equal(one, two)
    assert not weights_equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.are_deterministic_algorithms_enabled()


def test_threads_add_gradients_in_one_order(frames):
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 4, (20_000,), generator=random)  # each thread adds to each row
    upstream = torch.randn(20_000, 24, generator=random)
    gradients = []

    def loss(scores, teacher):
        table = torch.zeros(4, 24, requires_grad=True)
        table[rows].backward(upstream)
        gradients.append(table.grad)
        return scores.mean()

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        tiny_ranker(KNRM).fit(*frames[:2], loss=loss, **QUICK)
    finally:
        torch.set_num_threads(threads)
    assert len(gradients) == 4
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


def test_accumulation_gives_the_same_as_one_large_batch(frames):
    settings = {"loss": "ranknet", "clip_norm": 20.0, "epochs": 2, "batch_size": 7, "verbose": False}
    whole, parts = (tiny_ranker().fit(*frames[:2], accumulate=count, **settings) for count in (1, 3))
    assert parts.history["loss"].tolist() == pytest.approx(whole.history["loss"].tolist(), rel=1e-4)
    for name, tensor in whole.model.state_dict().items():
        assert torch.allclose(parts.model.state_dict()[name], tensor, atol=2e-4), name


def test_gradients_are_clipped(frames):
    fresh, settings = tiny_ranker(), {"max_steps": 1, "verbose": False}
    still = tiny_ranker().fit(*frames[:2], clip_norm=1e-12, **settings)  # far under Adam's epsilon
    moved = tiny_ranker().fit(*frames[:2], **settings)
    steps = [(ranker.model.dense.weight - fresh.model.dense.weight).abs().max().item() for ranker in (still, moved)]
    assert steps[0] < 1e-3 * steps[1]


def test_vectors_learn_at_their_own_rate(frames):
    fixed = tiny_ranker().fit(*frames[:2], representation_lr=0.0, **QUICK)
    fresh = tiny_ranker()
    lower = {id(parameter) for parameter in fixed.model.representation_parameters()}
    for (name, parameter), before in zip(fixed.model.named_parameters(), fresh.model.parameters(), strict=True):
        if id(parameter) in lower:
            assert torch.equal(parameter, before), name
    assert not torch.equal(fixed.model.dense.weight, fresh.model.dense.weight)
    # Adam's first step is as long as the rate, in every parameter with a gradient
    stepped = tiny_ranker().fit(*frames[:2], lr=1e-2, representation_lr=1e-3, max_steps=1, verbose=False)
    assert (stepped.model.dense.weight - fresh.model.dense.weight).abs().max().item() == pytest.approx(1e-2, rel=1e-3)
    moved = (stepped.model.vectors.weight - fresh.model.vectors.weight).abs().max().item()
    assert moved == pytest.approx(1e-3, rel=1e-3)


def test_bfloat16_trains_close_to_float32(frames):
    settings = {"loss": "ranknet", "max_steps": 1, "verbose": False}
    exact, reduced = (
        tiny_ranker().fit(*frames[:2], precision=precision, **settings).history["loss"][0]
        for precision in ("float32", "bfloat16")
    )
    assert reduced != exact
    assert reduced == pytest.approx(exact, rel=0.1)


def test_history_tells_epochs_steps_losses_and_measures(frames):
    ranker = tiny_ranker().fit(*frames, epochs=2, batch_size=6, measure=["RR@10", "nDCG@10"], verbose=False)
    history = ranker.history
    assert list(history) == ["epoch", "step", "examples", "loss", "RR@10", "nDCG@10", "seconds"]
    assert history[["epoch", "step", "examples"]].values.tolist() == [[1, 3, 16], [2, 6, 32]]
    by_steps = tiny_ranker().fit(*frames, max_steps=5, batch_size=6, validate_every=2, verbose=False).history
    assert by_steps[["epoch", "step", "examples"]].values.tolist() == [[1, 2, 12], [2, 4, 22], [2, 5, 28]]


def test_the_best_weights_are_kept_and_patience_ends_training(frames):
    settings = {"epochs": 9, "batch_size": 4, "lr": 3e-3, "verbose": False}
    ranker = tiny_ranker().fit(*frames, patience=2, **settings)
    scores = ranker.history["nDCG@10"]
    best = int(scores.argmax())
    assert len(scores) == best + 3 < 9  # two more after the best
    measured = pt.Evaluate(ranker(frames[2]), frames[3], metrics=["ndcg_cut_10"])["ndcg_cut_10"]
    assert measured == pytest.approx(scores[best])
    alone = tiny_ranker().fit(*frames[:2], **{**settings, "epochs": best + 1})
    assert weights_equal(ranker, alone)


def test_name_and_hash_follow_the_weights(frames):
    ranker = tiny_ranker()
    name, before = ranker.model_name, ranker.weights_id()
    ranker.fit(*frames[:2], **QUICK)
    assert ranker.model_name == f"tiny#{fingerprint(ranker.model)}" != name
    assert ranker.weights_id() == fingerprint(ranker.model) != before


def test_copies_share_weights_and_their_name(frames):
    ranker = tiny_ranker()
    other = ranker.apply_attributes(batch_size=3)
    named = ranker.apply_attributes(model_name="mine")
    assert ranker.weights_id() == other.weights_id()
    other.fit(*frames[:2], **QUICK)
    assert other.weights_id() == ranker.weights_id() == fingerprint(ranker.model)
    assert ranker.model_name == other.model_name == f"tiny#{ranker.weights_id()}"
    assert named.model_name == "mine"


def test_a_training_that_is_refused_leaves_term_weights_alone(frames):
    ranker = tiny_ranker()
    with pytest.raises(TypeError, match="lrate"):
        ranker.fit(*frames[:2], lrate=1)
    assert not ranker.model.has_idf


@pytest.mark.parametrize("validated", [False, True])
def test_encoded_documents_of_old_weights_are_not_used(frames, validated):
    res, qrels, *validation = frames
    validation = validation if validated else []
    ranker = tiny_ranker().encode_documents(res)
    entries = len(ranker.document_cache)
    ranker.fit(res, qrels, *validation, **QUICK)
    assert len(ranker.document_cache) == entries
    cached = ranker(res)["score"]
    ranker.document_cache = None
    assert np.allclose(cached, ranker(res)["score"], rtol=1e-5)


def test_a_pipeline_fits_its_ranker(frames):
    res, qrels, res_va, qrels_va = frames
    everything = pd.concat([res, res_va])
    texts = everything.set_index("docno")["text"].to_dict()
    first = pt.Transformer.from_df(everything.drop(columns="text"))
    ranker = tiny_ranker(TK)
    pipeline = first >> pt.apply.text(lambda row: texts[row["docno"]]) >> ranker
    topics, topics_va = (frame[["qid", "query"]].drop_duplicates() for frame in (res, res_va))
    before = ranker.weights_id()
    pipeline.fit(topics, qrels, topics_va, qrels_va)
    assert ranker.weights_id() != before
    assert "nDCG@10" in ranker.history
    assert len(pipeline(topics_va)) == len(res_va)
    only_training = tiny_ranker(KNRM)
    (first >> pt.apply.text(lambda row: texts[row["docno"]]) >> only_training).fit(topics, qrels)
    assert len(only_training.history) == 10


def test_one_process_needs_no_accelerate(frames, monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    assert len(tiny_ranker().fit(*frames[:2], **QUICK).history) == 2
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ImportError, match=r"pip install accelerate"):
        tiny_ranker().fit(*frames[:2], **QUICK)


def test_progress_shows_loss_and_measure(frames, capsys):
    tiny_ranker().fit(*frames, epochs=1, batch_size=8)
    shown = capsys.readouterr().err
    assert "TKL training" in shown
    assert "loss=" in shown
    assert "nDCG@10=" in shown


def test_weights_that_explode_are_reported(frames):
    ranker = tiny_ranker()
    with pytest.raises(FloatingPointError, match=r"in step [2-9].*lower lr"):
        ranker.fit(*frames[:2], lr=1e30, representation_lr=1e30, epochs=5, batch_size=8, verbose=False)
    assert not ranker.model.training
    assert ranker.model_name == f"tiny#{fingerprint(ranker.model)}"


def test_out_of_memory_says_what_to_change(frames, monkeypatch):
    ranker = tiny_ranker()

    def full(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(ranker.model, "forward", full)
    with pytest.raises(MemoryError, match="step 1: raise accumulate"):
        ranker.fit(*frames[:2], **QUICK)


def test_bad_calls_get_a_clear_error(frames, tmp_path):
    res, qrels, res_va, qrels_va = frames
    ranker = tiny_ranker(KNRM)
    with pytest.raises(ValueError, match="both or neither"):
        ranker.fit(res, qrels, res_va)
    with pytest.raises(ValueError, match="none of the validation results is relevant"):
        ranker.fit(res, qrels, res_va, qrels_va.assign(docno="z"), **QUICK)
    with pytest.raises(ValueError, match="No validation results"):
        ranker.fit(res, qrels, res_va.head(0), qrels_va, **QUICK)
    with pytest.raises(ValueError, match="save_every"):
        ranker.fit(res, qrels, output_dir=tmp_path, save_every=0)
    with pytest.raises(TypeError, match="no setting 'lrate'"):
        ranker.fit(res, qrels, lrate=1)
    frozen = tiny_ranker(KNRM)
    frozen.model.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter that is trained"):
        frozen.fit(res, qrels)


def test_frames_are_left_as_they_were(frames):
    copies = [frame.copy() for frame in frames]
    tiny_ranker(KNRM).fit(*frames, **QUICK)
    for frame, copy in zip(frames, copies, strict=True):
        pd.testing.assert_frame_equal(frame, copy)


def test_training_reads_no_more_than_ranking():
    ranker = tiny_ranker(max_doc_tokens=20)
    examples = collect_examples(ranker, *results("t", 0), Settings.of(train_doc_tokens=50), "retrieved")
    assert examples.documents.lengths.max() == 20


def test_frozen_vectors_resume_bit_for_bit_with_documents_shared_by_validation(frames, tmp_path):
    res, qrels = frames[:2]
    settings = {"representation_lr": 0.0, "batch_size": 4, "epochs": 4, "validate_every": 3, "patience": None}
    whole = tiny_ranker().fit(res, qrels, res, qrels, verbose=False, **settings)

    class StopError(Exception):
        pass

    stopped = tiny_ranker()
    write, count = Folder.write_last, iter(range(100))

    def stop(*args):
        write(*args)
        if next(count) == 1:  # 0 is the start
            raise StopError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(StopError):
        patch.setattr(Folder, "write_last", stop)
        stopped.fit(res, qrels, res, qrels, output_dir=tmp_path / "t", verbose=False, **settings)
    resumed = tiny_ranker().fit(res, qrels, res, qrels, resume=tmp_path / "t", verbose=False, **settings)
    assert weights_equal(whole, resumed)


def test_resume_refuses_another_architecture(frames, tmp_path):
    tiny_ranker().fit(*frames[:2], output_dir=tmp_path / "t", **QUICK)
    with pytest.raises(ValueError, match="the model are not those"):
        tiny_ranker(stride=3).fit(*frames[:2], resume=tmp_path / "t", **QUICK)
