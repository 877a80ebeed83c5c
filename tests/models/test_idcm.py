"""IDCM: the published code's scores for a pair alone, the passages, and what training stages change."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from pyterrier_longdoc.models.encoder import encoder_settings
from pyterrier_longdoc.models.idcm import IDCMConfig, IDCMModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.template import Frame, Template
from pyterrier_longdoc.windows import Ragged

CLS, SEP, PAD, VOCABULARY, DIMS = 1, 2, 0, 40, 24
TEMPLATE = Template(
    Frame((((CLS, 0),), ((SEP, 0),)), (0,)), Frame((((CLS, 0),), ((SEP, 0),), ((SEP, 0),)), (0, 0)), PAD
)
MU = torch.tensor([1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9])


def distilbert():
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=VOCABULARY, dim=DIMS, n_layers=2, n_heads=4, hidden_dim=32, max_position_embeddings=300,
        pad_token_id=PAD, initializer_range=0.5,
    )
    return DistilBertModel(config).eval()


def published_state(encoder, small=False):
    """Random parameters under the names of the published checkpoints."""
    torch.manual_seed(1)
    dims, filters = (12, 8) if small else (DIMS, DIMS)
    state = {f"bert_model.{name}": tensor for name, tensor in encoder.state_dict().items()}
    state |= {
        "_classification_layer.weight": torch.randn(1, DIMS), "_classification_layer.bias": torch.randn(1),
        "top_k_scoring": torch.randn(1, 3), "sample_cnn3.1.weight": torch.randn(filters, dims, 3) / 5,
        "sample_cnn3.1.bias": torch.randn(filters) / 5, "sampling_binweights.weight": torch.randn(1, 11),
        "sampling_binweights.bias": torch.randn(1), "kernel_alpha_scaler": 0.5 + torch.rand(1, 1, 11),
        "mu": MU.view(1, 1, 1, -1), "sigma": torch.full((1, 1, 1, 11), 0.1),
    }
    if small:
        state |= {"sample_projector.weight": torch.randn(12, DIMS) / 3, "sample_projector.bias": torch.randn(12) / 3}
    return state


@torch.no_grad()
def published_score(encoder, state, query, document, read=4, chunk=50, overlap=7):
    """One pair, one passage after the other, in the plainest words."""
    query = [CLS, *query, SEP]
    padded = [PAD] * overlap + [*document, SEP]
    chunks = [padded[start : start + chunk + 2 * overlap] for start in range(0, len(document) + 1, chunk)]
    chunks = [each + [PAD] * (chunk + 2 * overlap - len(each)) for each in chunks]

    def trigrams(ids):
        vectors = encoder.embeddings(torch.tensor([ids]))
        if "sample_projector.weight" in state:
            vectors = functional.linear(vectors, state["sample_projector.weight"], state["sample_projector.bias"])
        padded = functional.pad(vectors.transpose(1, 2), (0, 2))
        out = functional.conv1d(padded, state["sample_cnn3.1.weight"], state["sample_cnn3.1.bias"]).relu()
        return functional.normalize(out.transpose(1, 2), dim=-1)[0]

    cheap = []
    for ids in chunks:
        cosine = trigrams(query) @ trigrams(ids).T
        real = torch.tensor(ids) != PAD
        kernels = torch.exp(-((cosine[..., None] - MU) ** 2) / (2 * 0.1**2)) * real[None, :, None]
        logs = (kernels.sum(1) * state["kernel_alpha_scaler"][0]).clamp(min=1e-4).log().sum(0)
        cheap.append(float(logs @ state["sampling_binweights.weight"][0] + state["sampling_binweights.bias"]))
    chosen = sorted(range(len(chunks)), key=lambda i: -cheap[i])[:read]
    scores = []
    for number in chosen:
        ids = torch.tensor([query + chunks[number]])
        first = encoder(input_ids=ids, attention_mask=(ids != PAD).long()).last_hidden_state[0, 0]
        scores.append(float(first @ state["_classification_layer.weight"][0] + state["_classification_layer.bias"]))
    best = sorted(scores, reverse=True)[:3]
    return sum(weight * score for weight, score in zip(state["top_k_scoring"][0].tolist(), best, strict=False)), chosen


def texts(lengths, seed=0):
    generator = np.random.default_rng(seed)
    return Ragged.from_lists([generator.integers(3, VOCABULARY, length) for length in lengths])


LENGTHS = [0, 1, 43, 49, 50, 51, 99, 100, 199, 260, 333, 700]


@pytest.mark.parametrize("small", [False, True])
def test_scores_of_the_published_code(small):
    encoder = distilbert()
    state = published_state(encoder, small)
    settings = encoder_settings(encoder)
    model = IDCMModel.from_matchmaker(state, settings, TEMPLATE, passage_tokens=50, overlap=7, max_passages=4)
    queries, documents = texts([3, 8, 1], 1), texts(LENGTHS)
    pairs = np.array([(q, d) for q in range(3) for d in range(len(documents))])
    with torch.no_grad():
        scores = model(queries, documents, pairs, Budget(1_000))
        read = [each for each, _ in model.explain(queries, documents, pairs, Budget(1_000))]
    for (query, document), score, positions in zip(pairs, scores.tolist(), read, strict=True):
        ids = documents[document].tolist()
        expected, chosen = published_score(encoder, state, queries[query].tolist(), ids)
        assert score == pytest.approx(expected, rel=2e-5, abs=2e-5)
        last = len(ids) // 50
        starts = [max(50 * number - 7, 0) for number in sorted(chosen) if number < last or len(ids) > 50 * last - 7]
        assert [row[0] for row in positions.tolist() if row[0] >= 0] == [start for start in starts if start < len(ids)]
        assert positions.max(initial=-1) < len(ids)


def test_what_is_no_checkpoint():
    encoder = distilbert()
    state = published_state(encoder)
    del state["_classification_layer.bias"]
    with pytest.raises(ValueError, match=r"(?s)not the parameters of IDCM.*head\.1\.bias"):
        IDCMModel.from_matchmaker(state, encoder_settings(encoder), TEMPLATE)


def own_model(**settings):
    torch.manual_seed(3)
    return IDCMModel(IDCMConfig(encoder_settings(distilbert()), TEMPLATE, **settings)).eval()


def test_passages_cover_every_token_once():
    model = own_model(passage_tokens=10, overlap=3)
    windows = model.document_windows(texts([0, 1, 10, 11, 25]))
    assert windows.document.tolist() == [0, 1, 2, 3, 3, 4, 4, 4]
    cores = [row[first:end].tolist() for row, (first, end) in zip(windows.positions, windows.core, strict=True)]
    assert cores[0] == [-1]  # an empty document is one empty passage
    assert cores[3] + cores[4] == list(range(11))
    assert cores[5] + cores[6] + cores[7] == list(range(25))
    assert windows.positions[6].tolist() == list(range(7, 23))


def test_only_the_chosen_passages_count(monkeypatch):
    """Changing a passage that was not read leaves the score; changing one that was read does not."""
    model = own_model(passage_tokens=10, overlap=0, max_passages=2)
    monkeypatch.setattr(model, "select", lambda passages, *_: torch.tensor([0.0, 5, 1, 7, -1, 2]))
    queries, documents, pair = texts([4], 1), texts([60]), np.array([[0, 0]])
    with torch.no_grad():
        score = model(queries, documents, pair).item()
        ((positions, weights),) = model.explain(queries, documents, pair, Budget(500))
        assert positions[:, 0].tolist() == [10, 30]
        assert weights.sum() == pytest.approx(score, abs=1e-6)
        for start in range(0, 60, 10):
            ids = documents[0].copy()
            ids[start + 4] = 3 + (ids[start + 4] - 2) % (VOCABULARY - 3)
            other = model(queries, Ragged.from_lists([ids]), pair).item()
            assert (other != score) == (start in (10, 30))


def test_the_selector_sees_each_passage_alone():
    model = own_model()
    queries, documents = texts([4, 9], 1), texts([200, 3, 70])
    pairs = np.array([[0, 0], [1, 0], [1, 1], [0, 2]])
    with torch.no_grad():
        every = model.all_passages(documents, pairs)
        together = model.select(every, queries, documents, Budget(10_000))
        alone = model.select(every, queries, documents, Budget(1))
    assert len(every.windows) == 4 + 4 + 1 + 2
    assert torch.allclose(together, alone, atol=1e-6)
    assert together.unique().numel() == len(together)


def test_the_best_three_make_the_score():
    model = own_model(passage_tokens=10, overlap=0, max_passages=5, summed=3)
    with torch.no_grad():
        model.weights.copy_(torch.tensor([1.0, 0.5, 0.25]))
        outputs = torch.randn(1, 5, DIMS)
        scores = model.head(outputs)[0, :, 0].sort(descending=True).values
        expected = scores[0] + 0.5 * scores[1] + 0.25 * scores[2]
        assert model.aggregate(outputs).item() == pytest.approx(expected.item(), abs=1e-6)
        assert model.passage_weights(outputs).sum().item() == pytest.approx(expected.item(), abs=1e-6)
        assert (model.passage_weights(outputs) == 0).sum() == 2
        two = model.aggregate(outputs[:, :2])  # fewer passages than weights
        assert two.item() == pytest.approx((model.head(outputs)[0, :2, 0].sort(descending=True).values
                                            @ model.weights[:2]).item(), abs=1e-6)


@pytest.mark.parametrize("name", ["max_passages", "summed", "train_passages"])
def test_settings_are_checked(name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
        own_model(**{name: 0})
    with pytest.raises(ValueError, match="tokens of a passage must be"):
        own_model(passage_tokens=0)
    with pytest.raises(ValueError, match="selector must be one of"):
        own_model(selector="unheard of")


def test_other_selectors_take_the_place_of_the_learned_one():
    queries, documents, pair = texts([4], 1), texts([200]), np.array([[0, 0]])
    model = own_model(passage_tokens=10, overlap=0, max_passages=3, selector="first")
    with torch.no_grad():
        ((positions, _),) = model.explain(queries, documents, pair, Budget(500))
    assert positions[:, 0].tolist() == [0, 10, 20]
