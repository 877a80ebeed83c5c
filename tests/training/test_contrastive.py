"""The contrastive loss, what matches what, and training of documents against each other."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.colde import fit_contrastive
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.training.contrastive import Contrastive, ContrastiveSettings, Matches, Views
from pyterrier_longdoc.training.losses import contrastive_loss, supervised_contrastive_loss
from tests.conftest import words

GOLDEN = np.load(Path(__file__).parents[1] / "models" / "golden" / "colde_supcon.npz")
CASES = sorted({name.split("/")[0] for name in GOLDEN.files})


# The loss -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_that_of_the_published_code(case):
    _, temperature, mode, kind = case.split("_")
    features = torch.tensor(GOLDEN[f"{case}/features"], requires_grad=True)
    labels = None if kind == "none" else torch.tensor(GOLDEN[f"{case}/labels"])
    loss = supervised_contrastive_loss(
        features, labels, temperature=float(temperature[1:]), base_temperature=0.07, contrast_mode=mode
    )
    loss.backward()
    assert loss.item() == pytest.approx(float(GOLDEN[f"{case}/loss"]), rel=1e-5, abs=1e-6)
    assert np.abs(features.grad.numpy() - GOLDEN[f"{case}/grad"]).max() < 1e-5


def naive_loss(vectors: np.ndarray, relation: np.ndarray, temperature: float) -> float:
    losses = []
    for i in range(len(vectors)):
        others = [j for j in range(len(vectors)) if j != i and relation[i, j] >= 0]
        positives = [j for j in others if relation[i, j] > 0]
        total = sum(np.exp(vectors[i] @ vectors[j] / temperature) for j in others)
        if positives:
            losses.append(
                -np.mean([np.log(np.exp(vectors[i] @ vectors[j] / temperature) / total) for j in positives])
            )
    return float(np.mean(losses)) if losses else 0.0


@given(st.integers(1, 9), st.integers(0, 10_000), st.sampled_from([0.07, 0.5, 2.0]))
def test_the_loss_of_any_relation_is_that_of_a_naive_version(count, seed, temperature):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    relation = random.integers(-1, 2, (count, count))
    tensor = torch.tensor(vectors, dtype=torch.float32, requires_grad=True)
    loss = contrastive_loss(tensor, torch.tensor(relation), temperature)
    loss.backward()
    assert loss.item() == pytest.approx(naive_loss(vectors, relation, temperature), rel=1e-4, abs=1e-4)
    assert torch.isfinite(tensor.grad).all()


def test_what_is_neither_has_no_influence():
    vectors = torch.nn.functional.normalize(torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), dim=1)
    relation = torch.tensor([[1, 1, -1, 0], [1, 1, -1, 0], [-1, -1, 1, -1], [0, 0, -1, 1]])
    with_third = contrastive_loss(vectors, relation)
    without = contrastive_loss(vectors[[0, 1, 3]], relation[[0, 1, 3]][:, [0, 1, 3]])
    assert with_third.item() == pytest.approx(without.item())


def test_labels_are_a_special_case_of_a_mask():
    features = torch.nn.functional.normalize(torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(1)), dim=2)
    labels = torch.tensor([0, 1, 0, 2, 1])
    by_labels = supervised_contrastive_loss(features, labels)
    assert by_labels.item() == pytest.approx(
        supervised_contrastive_loss(features, mask=(labels[:, None] == labels).int()).item()
    )
    assert supervised_contrastive_loss(features).item() != pytest.approx(by_labels.item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": torch.ones(2, 3)}, r"features must be \[N, views, D\]"),
        ({"labels": torch.ones(3)}, r"labels must be \[2\] to fit the features, got \[3\]"),
        ({"mask": torch.ones(2, 3)}, r"mask must be \[2, 2\]"),
        ({"mask": torch.ones(2, 2), "labels": torch.ones(2)}, "not both"),
        ({"temperature": 0.0}, "temperature must be over 0"),
        ({"base_temperature": -1.0}, "base_temperature must be over 0"),
        ({"contrast_mode": "some"}, "contrast_mode must be"),
    ],
)
def test_arguments_of_the_loss_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        supervised_contrastive_loss(**{"features": torch.ones(2, 2, 4), **options})


# What matches what ----------------------------------------------------------------------------------------------------


def test_a_chain_is_neither_a_match_nor_apart():
    """0-1 and 1-2 match, so 0 and 2 are linked; 3-4 match; 0 and 5 were said not to match, as were 3 and 4 once."""
    pairs = np.array([[0, 1], [2, 1], [3, 4], [4, 3], [5, 0]])
    matches = Matches.of_pairs(6, pairs, np.array([True, True, True, False, False]))
    assert matches.relation(np.arange(6)).tolist() == [
        [1, 1, -1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [-1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1],
    ]
    assert matches.relation(np.array([2, 0])).tolist() == [[1, -1], [-1, 1]]
    assert [matches.partners(number).tolist() for number in range(6)] == [[1], [0, 2], [1], [4], [3], []]


def test_what_is_said_not_to_match_repels_even_along_a_chain():
    pairs = np.array([[0, 1], [1, 2], [0, 2]])
    matches = Matches.of_pairs(3, pairs, np.array([True, True, False]))
    assert matches.relation(np.arange(3)).tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]


def test_large_classes_take_no_more_memory_than_their_documents():
    matches = Matches(np.zeros(30_000, np.int64), None, np.empty(0, np.int64))
    assert matches.any()
    assert len(matches.partners(7)) == 29_999
    assert not Matches(np.arange(4), None, np.empty(0, np.int64)).any()
    assert not Matches.of_pairs(3, np.array([[0, 1]]), np.array([False])).any()


def test_groups():
    matches = Matches(np.array([0, 1, 0, 0]), None, np.empty(0, np.int64))
    assert matches.relation(np.arange(4)).tolist() == [[1, 0, 1, 1], [0, 1, 0, 0], [1, 0, 1, 1], [1, 0, 1, 1]]
    assert [matches.partners(number).tolist() for number in range(4)] == [[2, 3], [], [0, 3], [0, 2]]


# The task -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def colde(tiny):
    def make(**settings):
        return longdoc.CoLDE(tiny.encoder, **{"chunk_tokens": 40, "hidden": 8, "dims": 8, "seed": 2, **settings})

    return make


@pytest.fixture(scope="module")
def pairs() -> pd.DataFrame:
    """Documents of six kinds, each kind with words of its own; two of the same kind match."""
    generator = np.random.default_rng(5)

    def text(kind: int) -> str:
        own = " ".join(f"w{kind * 9 + number}" for number in generator.integers(0, 9, 45))
        return f"{own}. {words(generator, 12)}. {own[:90]}. {words(generator, 9)}."

    texts = [text(number % 6) for number in range(36)]
    rows = [(texts[a], texts[b], int(a % 6 == b % 6)) for a in range(12) for b in (a + 12, a + 13, a + 24)]
    return pd.DataFrame(rows, columns=["text_a", "text_b", "label"])


def task_of(ranker, pairs, **settings) -> Contrastive:
    from pyterrier_longdoc.pairs import as_pairs

    return Contrastive.of(ranker, as_pairs(pairs), ContrastiveSettings.of(**settings))


def test_every_document_comes_once_an_epoch_and_brings_a_match_along(colde, pairs):
    task = task_of(colde(), pairs)
    assert len(task) == 36
    orders = [task.order(epoch) for epoch in (0, 1, 0)]
    assert all(sorted(order) == list(range(len(task))) for order in orders)
    assert orders[0].tolist() == orders[2].tolist() != orders[1].tolist()
    followed = zip(orders[0], orders[0][1:], strict=False)
    neighbours = sum(second in task.matches.partners(first) for first, second in followed)
    assert neighbours >= len(task) // 3
    assert task_of(colde(), pairs, seed=1).order(0).tolist() != orders[0].tolist()


def test_the_loss_of_a_batch_is_that_of_its_views(colde, pairs):
    ranker = colde()
    task = task_of(ranker, pairs)
    examples = task.order(0)[:8]
    with torch.no_grad():
        loss, means = task.loss(ranker, Views(ranker.model.eval()), 0, examples, Budget(200))
        views, document = ranker.model.encode_views(task.documents.take(examples), Budget(1_000))
    relation = task.matches.relation(examples)[document][:, document]
    assert loss.item() == pytest.approx(naive_loss(views.double().numpy(), relation, 0.5), rel=1e-4)
    cosines = views.numpy() @ views.numpy().T
    off = ~np.eye(len(views), dtype=bool)
    assert means["match_similarity"].item() == pytest.approx(cosines[(relation > 0) & off].mean(), rel=1e-4)
    assert means["other_similarity"].item() == pytest.approx(cosines[relation == 0].mean(), rel=1e-4)


def test_training_brings_matches_together(colde, pairs):
    ranker = colde(pooling="mean")
    before = ranker.weights_id()
    settings = {"batch_size": 18, "epochs": 15, "lr": 1e-2, "representation_lr": 1e-3, "patience": None}
    assert ranker.fit_pairs(pairs, pairs, **settings, verbose=False) is ranker
    assert ranker.weights_id() != before
    history = ranker.history
    assert list(history.columns[:6]) == ["epoch", "step", "examples", "loss", "match_similarity", "other_similarity"]
    gap = history["match_similarity"] - history["other_similarity"]
    assert gap.iloc[-1] > gap.iloc[0] + 0.2
    assert history["loss"].iloc[-1] < history["loss"].iloc[0]
    assert ranker.evaluate_pairs(pairs, pairs)["AUC"] > 0.9


def test_a_training_that_was_cut_off_goes_on_to_the_same_weights(colde, pairs, tmp_path, monkeypatch):
    settings = {"batch_size": 12, "epochs": 2, "verbose": False, "seed": 4}
    whole = colde().fit_pairs(pairs, **settings).weights_id()
    loss, calls = Contrastive.loss, []

    def interrupted(*args):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return loss(*args)

    monkeypatch.setattr(Contrastive, "loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        colde().fit_pairs(pairs, **settings, output_dir=tmp_path / "run", save_every=1)
    resumed = colde().fit_pairs(pairs, **settings, resume=tmp_path / "run")
    assert len(calls) == 5 + 2
    assert resumed.weights_id() == whole
    with pytest.raises(ValueError, match="cannot resume"):
        colde().fit_pairs(pairs[:20], **settings, resume=tmp_path / "run")
    assert colde().fit_pairs(pairs, **{**settings, "seed": 5}).weights_id() != whole


def test_one_large_batch_in_any_number_of_parts_of_the_pool(colde, pairs):
    """What the budget makes of a step changes its memory, not its result."""
    gradients = []
    for budget in (40, 100_000):
        ranker = colde()
        task = task_of(ranker, pairs)
        loss, _ = task.loss(ranker, Views(ranker.model.eval()), 0, np.arange(12), Budget(budget))
        loss.backward()
        gradients.append([p.grad for p in ranker.model.parameters() if p.grad is not None])
    for small, large in zip(*gradients, strict=True):
        assert torch.allclose(small, large, atol=1e-5)


def test_groups_of_documents(colde, pairs):
    texts = list(dict.fromkeys(pairs.text_a))
    documents = pd.DataFrame({"docno": range(12), "text": texts, "group": [n % 6 for n in range(12)]})
    ranker = colde().fit_pairs(documents, batch_size=12, epochs=1, verbose=False)
    assert len(ranker.history) == 1
    with pytest.raises(ValueError, match="need a column 'text'"):
        colde().fit_pairs(documents.drop(columns="text"))
    with pytest.raises(ValueError, match="'group' of the documents must hold"):
        colde().fit_pairs(documents.assign(group=None))
    with pytest.raises(TypeError, match="'text' of the documents holds float"):
        colde().fit_pairs(documents.assign(text=np.nan))
    with pytest.raises(ValueError, match="1 documents are in more than one group"):
        colde().fit_pairs(pd.concat([documents, documents[:1].assign(group=9)]))
    with pytest.raises(ValueError, match="no two of the 12 training documents match"):
        colde().fit_pairs(documents.assign(group=range(12)))


def test_other_losses(colde, pairs):
    ranker = colde(augmentation=False).fit_pairs(pairs, loss="cosine", batch_size=12, epochs=1, verbose=False)
    assert np.isfinite(ranker.history["loss"]).all()
    colde().fit_pairs(pairs[:12], loss="binary", epochs=1, verbose=False)
    with pytest.raises(ValueError, match="loss must be one of 'contrastive', 'cosine'"):
        colde().fit_pairs(pairs, loss="triplet")


def test_any_dual_encoder_can_be_trained_by_contrast(tiny, pairs):
    ranker = longdoc.MatchBERT(tiny.encoder, pooling="mean")
    fit_contrastive(ranker, pairs, batch_size=12, epochs=1, verbose=False)
    assert np.isfinite(ranker.history["loss"]).all()
    with pytest.raises(ValueError, match="section_tokens must be None"):
        fit_contrastive(ranker, pairs, section_tokens=5)


def test_training_reads_as_much_of_each_section_as_asked(colde, pairs):
    ranker = colde()
    cut = task_of(ranker, pairs, section_tokens=7).documents
    _, _, rows = cut.runs()
    assert (rows[:, 1] - rows[:, 0]).max() == 7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert task_of(ranker, pairs, train_doc_tokens=90).documents.lengths.max() == 90
        assert set(task_of(ranker, pairs, train_doc_tokens=90).documents.section) == {0, 1}  # of what is read
        ranker.max_doc_tokens = 9
        assert task_of(ranker, pairs, train_doc_tokens=90).documents.lengths.max() == 9
        assert ranker.max_doc_tokens == 9


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"accumulate": 2}, ValueError, "accumulate must be 1"),
        ({"temperature": 0}, ValueError, "temperature must be over 0"),
        ({"tau": 0.5}, TypeError, "no setting 'tau'"),
        ({"measure": "MAP"}, ValueError, "measure must be one of"),
    ],
)
def test_settings_are_checked(colde, pairs, settings, error, message):
    with pytest.raises(error, match=message):
        colde().fit_pairs(pairs, pairs, **settings)
