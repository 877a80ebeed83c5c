"""What every kernel model promises for given vectors: invariance to batch and padding, gradients, clear errors."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_longdoc.models.conv_knrm import ConvKNRMConfig, ConvKNRMModel
from pyterrier_longdoc.models.kernel_model import KernelModel
from pyterrier_longdoc.models.knrm import KNRMConfig, KNRMModel
from pyterrier_longdoc.models.saturation import KINDS
from pyterrier_longdoc.models.tk import TKConfig, TKModel
from pyterrier_longdoc.models.tkl import TKLConfig, TKLModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.windows import Ragged

DIMS, TERMS = 8, 30
_SIZES = {"heads": 2, "feedforward": 12}
MODELS = {
    **{f"TKL-{kind}": lambda kind=kind: TKLModel(TKLConfig(DIMS, TERMS, saturation=kind, **_SIZES)) for kind in KINDS},
    "TK-log": lambda: TKModel(TKConfig(DIMS, TERMS, **_SIZES)),
    "TK-log2_mean": lambda: TKModel(TKConfig(DIMS, TERMS, form="log2_mean", mix=False, **_SIZES)),
    "TK-stacked": lambda: TKModel(TKConfig(DIMS, TERMS, form="stacked", projection=6, **_SIZES)),
    "KNRM": lambda: KNRMModel(KNRMConfig(DIMS, TERMS)),
    "ConvKNRM": lambda: ConvKNRMModel(ConvKNRMConfig(DIMS, TERMS, filters=5)),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request) -> KernelModel:
    """In float64, with weights that are nowhere special."""
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODELS[request.param]().double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            if name == "saturation.curves.bias":
                parameter.copy_(torch.tensor([1.5, 2.5, 0.7])[: len(parameter)])
            if name == "saturation.curves.weight":
                parameter.mul_(0.05)
    return model


def make_inputs(query_lengths: list[int], lengths: list[int], seed: int = 0, extra: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def table(sizes: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(sizes) + extra
        values = torch.randn(len(sizes), longest, DIMS, generator=generator, dtype=torch.float64)
        return values, torch.arange(longest) < torch.tensor(sizes)[:, None]

    query, query_mask = table(query_lengths)
    document, mask = table(lengths)
    return {
        "query_vectors": query, "query_mask": query_mask, "document_vectors": document, "document_mask": mask,
        "query_idf": 3 * torch.rand(query_mask.shape, generator=generator, dtype=torch.float64),
    }


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 130)), min_size=1, max_size=5),
    st.integers(0, 20), st.integers(0, 1_000),
)
def test_a_pair_scores_the_same_alone_and_in_any_padded_batch(model, sizes, extra, seed):
    inputs = make_inputs(*map(list, zip(*sizes, strict=True)), seed, extra)
    with torch.no_grad():
        together = model.score_embeddings(**inputs)
        alone = []
        for i, (n, m) in enumerate(sizes):
            cut = {name: value[i : i + 1, : m if "document" in name else n] for name, value in inputs.items()}
            alone.append(model.score_embeddings(**cut))
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)


def test_padding_is_not_read(model):
    """Whatever lies under the mask."""
    inputs = make_inputs([2, 4], [90, 33], extra=7)
    spoilt = {name: value.clone() for name, value in inputs.items()}
    for part in ("query", "document"):
        spoilt[f"{part}_vectors"][~spoilt[f"{part}_mask"]] = 1e6
    spoilt["query_idf"][~spoilt["query_mask"]] = 1e6
    with torch.no_grad():
        torch.testing.assert_close(model.score_embeddings(**spoilt), model.score_embeddings(**inputs))


def test_masks_of_numbers_are_masks(model):
    inputs = make_inputs([2, 4], [90, 33])
    with torch.no_grad():
        expected = model.score_embeddings(**inputs)
        for kind in (torch.float32, torch.int64):
            masks = {name: inputs[name].to(kind) for name in ("query_mask", "document_mask")}
            torch.testing.assert_close(model.score_embeddings(**{**inputs, **masks}), expected)


@pytest.mark.parametrize("name", ["query_mask", "document_mask"])
def test_a_gap_in_a_mask_raises(model, name):
    inputs = make_inputs([3, 3], [50, 20])
    inputs[name][1, 1] = False
    with pytest.raises(ValueError, match=f"{name} has a gap"):
        model.score_embeddings(**inputs)


@pytest.mark.parametrize("kind", ["salience", "idf", "linear"])
def test_term_weights_must_be_given_where_they_count(kind):
    inputs = make_inputs([3], [50])
    model = TKLModel(TKLConfig(DIMS, saturation=kind, **_SIZES)).double()
    with pytest.raises(ValueError, match=f"{kind}.*IDF"):
        model.score_embeddings(**{**inputs, "query_idf": None})


def test_texts_without_tokens(model):
    """An empty query or document gives a finite score and leaves its neighbours alone."""
    inputs = make_inputs([3, 3, 3], [50, 20, 41])
    full = make_inputs([3, 3, 3], [50, 20, 41])
    inputs["query_mask"][1] = False
    inputs["document_mask"][2] = False
    with torch.no_grad():
        scores, expected = model.score_embeddings(**inputs), model.score_embeddings(**full)
        inputs["query_mask"][:] = False
        inputs["document_mask"][:] = False
        nothing = model.score_embeddings(**inputs)
    assert scores.isfinite().all()
    torch.testing.assert_close(scores[0], expected[0])
    assert scores[1] == 0  # no term, no match
    assert nothing.tolist() == [0, 0, 0]


def test_gradients_equal_finite_differences(model):
    """Of the whole score: parameters and inputs, a sample of each."""
    model = copy.deepcopy(model)
    inputs = make_inputs([2, 4, 1], [90, 33, 6])
    leaves = {name: inputs[name].requires_grad_() for name in ("query_vectors", "document_vectors", "query_idf")}
    leaves |= {name: p for name, p in model.named_parameters() if p.requires_grad}
    _compare_gradients(lambda: model.score_embeddings(**inputs).sum(), leaves)


def test_gradients_from_token_ids_equal_finite_differences(model):
    """The table of vectors and the salience of terms are reached too."""
    model = copy.deepcopy(model)
    generator = np.random.default_rng(0)
    queries = Ragged.from_lists([[1, 2, 3], [4]])
    documents = Ragged.from_lists([generator.integers(0, TERMS, length) for length in (90, 33)])
    pairs = np.array([[0, 0], [0, 1], [1, 1]])
    parameters = dict(model.named_parameters())
    leaves = {name: parameters[name] for name in ("vectors.weight", "salience") if name in parameters}
    _compare_gradients(lambda: model(queries, documents, pairs, Budget(200)).sum(), leaves)
    if "salience" in leaves and model.saturation.kind == "salience":  # reached for query terms only
        assert leaves["salience"].grad[:5].abs().gt(0).tolist() == [False, True, True, True, True]


def _compare_gradients(score, leaves: dict[str, torch.Tensor], step: float = 1e-6) -> None:
    score().backward()
    generator = np.random.default_rng(0)
    compared = 0
    for name, leaf in leaves.items():
        if leaf.grad is None:
            continue
        flat, gradient = leaf.detach().view(-1), leaf.grad.reshape(-1)
        candidates = gradient.nonzero().flatten().numpy()
        chosen = [*generator.choice(candidates, min(3, len(candidates)), replace=False), generator.integers(len(flat))]
        for i in chosen if len(candidates) else chosen[-1:]:
            before = flat[i].item()
            with torch.no_grad():
                flat[i] = before + step
                above = score().item()
                flat[i] = before - step
                below = score().item()
                flat[i] = before
            expected = (above - below) / (2 * step)
            tolerance = 1e-5 * max(1e-2, abs(expected), gradient.abs().max().item())
            found = gradient[i].item()
            assert abs(found - expected) <= tolerance, f"{name}[{i}]: {found:.3e}, not {expected:.3e}"
            compared += found != 0
    assert compared >= 2


def test_scores_do_not_depend_on_gradients_being_recorded(model):
    inputs = make_inputs([2, 4], [90, 33])
    recorded = model.score_embeddings(**inputs).detach()
    with torch.inference_mode():
        torch.testing.assert_close(model.score_embeddings(**inputs), recorded)


def test_the_budget_changes_no_score(model):
    generator = np.random.default_rng(3)
    queries = Ragged.from_lists([[1, 2, 3], [4], []])
    documents = Ragged.from_lists([generator.integers(0, TERMS, length) for length in (0, 1, 41, 90, 133)])
    pairs = np.array([[q, d] for q in range(3) for d in range(5)])
    with torch.no_grad():
        expected = model(queries, documents, pairs)
        for tokens in (1, 37, 400, 100_000):
            torch.testing.assert_close(model(queries, documents, pairs, Budget(tokens)), expected, rtol=1e-9, atol=1e-9)
        assert model(queries, documents, pairs[:0], Budget(10)).shape == (0,)


def test_encoded_queries_are_zero_where_there_is_no_token(model):
    with torch.no_grad():
        queries = model.encode_queries(Ragged.from_lists([[1, 2, 3], [], [4]]))
    assert queries.mask.tolist() == [[True, True, True], [False, False, False], [True, False, False]]
    assert (queries.vectors[~queries.mask] == 0).all()
    assert (queries.vectors[queries.mask] != 0).any(1).all()
    taken = queries.take(torch.tensor([2, 0]))
    assert torch.equal(taken.vectors, queries.vectors[[2, 0]])
    assert torch.equal(taken.mask, queries.mask[[2, 0]])


def test_representation_parameters_are_trained_apart(model):
    """Vectors and what contextualises them; the head is not among them."""
    chosen = {id(parameter) for parameter in model.representation_parameters()}
    names = {name.split(".")[0] for name, parameter in model.named_parameters() if id(parameter) in chosen}
    assert "vectors" in names
    assert names <= {"vectors", "query_positions", "document_positions", "contextualizer", "convolutions"}


def test_configs_survive_json(model):
    import json

    config = model.config
    assert type(config).from_dict(json.loads(json.dumps(config.to_dict()))) == config
