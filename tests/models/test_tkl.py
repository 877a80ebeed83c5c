"""TKL against a second implementation: plain loops, written from the paper's formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.models.saturation import KINDS
from pyterrier_longdoc.models.tkl import TKLConfig, TKLModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.windows import Ragged

CENTRES = [1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9]


def shaken(saturation: str, seed: int = 0, scale: float = 0.3, **settings: int) -> TKLModel:
    """A model in float64 whose weights are nowhere special; its curves are far from flat."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = TKLModel(TKLConfig(dims=8, heads=2, feedforward=12, saturation=saturation, **settings)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        if hasattr(model.saturation, "curves"):
            model.saturation.curves.bias.copy_(torch.tensor([1.5, 2.5, 0.7])[: len(model.saturation.curves.bias)])
            model.saturation.curves.weight.mul_(0.05)
    return model.eval()


def inputs(seed: int, query_lengths: list[int], lengths: list[int], dims: int = 8) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    longest_query, longest = max(query_lengths), max(lengths)
    query = torch.randn(len(lengths), longest_query, dims, generator=generator, dtype=torch.float64)
    document = torch.randn(len(lengths), longest, dims, generator=generator, dtype=torch.float64)
    query_mask = torch.arange(longest_query) < torch.tensor(query_lengths)[:, None]
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    idf = 3 * torch.randn(len(lengths), longest_query, generator=generator, dtype=torch.float64)  # some are negative
    return query, query_mask, document, mask, idf


def naive_curve(model: TKLModel, query: np.ndarray, idf: float, count: int) -> np.ndarray:
    """a, b, c of one query term in a region of ``count`` tokens (eq. 5)."""
    saturation = model.saturation
    if saturation.kind == "embedding":
        feature = np.array([saturation.reduce.weight[0].detach().numpy() @ query, count])
        feature = (feature - feature.mean()) / np.sqrt(feature.var() + saturation.norm.eps)
        feature = feature * saturation.norm.weight.detach().numpy() + saturation.norm.bias.detach().numpy()
    else:
        feature = np.array([max(idf, 0.0), count])
    return saturation.curves.weight.detach().numpy() @ feature + saturation.curves.bias.detach().numpy()


def naive_saturation(model: TKLModel, soft: float, kernel: int, curve: np.ndarray | None) -> float:
    if model.saturation.kind == "log":
        return np.log(max(1e-10, soft * model.saturation.factor[kernel].item()))
    if model.saturation.kind == "linear":
        return curve[0] * soft + curve[1]
    return curve[0] * max(1e-10, soft) ** (1 / curve[1]) - curve[2]


def naive_topography(model: TKLModel, query: np.ndarray, document: np.ndarray, idf: np.ndarray) -> list[float]:
    """The score of each region that holds a token; vectors are contextualised already."""
    topography = []
    for start in range(0, len(document), model.config.stride):
        region = document[start : start + model.config.region]
        score = 0.0
        for term, salience in zip(query, idf, strict=True):
            curve = None if model.saturation.kind == "log" else naive_curve(model, term, salience, len(region))
            for kernel, centre in enumerate(np.float32(CENTRES)):
                soft = 0.0
                for token in region:
                    cosine = term @ token / np.linalg.norm(term) / np.linalg.norm(token)
                    soft += np.exp(-((cosine - float(centre)) ** 2) / (2 * float(np.float32(0.1)) ** 2))
                score += model.dense.weight[0, kernel].item() * naive_saturation(model, soft, kernel, curve)
        topography.append(score)
    return topography


def naive_peaks(topography: list[float], peaks: int, distance: int) -> tuple[list[int], list[float]]:
    """Picks regions one by one; beyond the document lies an endless plain of zeros."""
    picks: list[int] = []
    for _ in range(peaks):
        free = [r for r in range(len(topography)) if all(abs(r - pick) >= distance for pick in picks)]
        if free:
            picks.append(max(free, key=lambda r: (topography[r], -r)))
        else:
            behind = range(len(topography), len(topography) + peaks * distance + 1)
            picks.append(next(r for r in behind if all(abs(r - pick) >= distance for pick in picks)))
    around = [max(0, pick + shift) for shift in (0, -1, 1, -2, 2) for pick in picks]
    return picks, [topography[r] if r < len(topography) else 0.0 for r in around]


def naive_score(model: TKLModel, query: np.ndarray, document: np.ndarray, idf: np.ndarray) -> float:
    topography = naive_topography(model, query, document, idf)
    _, values = naive_peaks(topography, model.config.peaks, -(-model.config.region // model.config.stride))
    return float(np.dot(values, model.peak_weights.detach().numpy()))


@pytest.mark.parametrize("saturation", KINDS)
def test_interaction_equals_plain_loops(saturation):
    model = shaken(saturation)
    query, query_mask, document, mask, idf = inputs(1, [3, 1, 2, 4, 2], [7, 1, 38, 95, 151])
    with torch.no_grad():
        scores = model.score_embeddings(query, query_mask, document, mask, idf)
        for i, score in enumerate(scores.tolist()):
            n, m = int(query_mask[i].sum()), int(mask[i].sum())
            q = model.contextualize_query(query[i : i + 1, :n], query_mask[i : i + 1, :n])[0]
            d = model.contextualize_documents(Ragged.from_lists([[0] * m]), Budget(99), document[i, :m])
            assert score == pytest.approx(naive_score(model, q.numpy(), d.numpy(), idf[i, :n].numpy()), rel=1e-9)


@pytest.mark.parametrize(
    "settings", [{"peaks": 1}, {"peaks": 5}, {"region": 7, "stride": 3}, {"stride": 30}, {"region": 1, "stride": 1}]
)
def test_other_sizes_equal_plain_loops(settings):
    model = shaken("salience", **settings)
    query, query_mask, document, mask, idf = inputs(2, [2, 2, 2], [3, 33, 70])
    with torch.no_grad():
        scores = model.score_embeddings(query, query_mask, document, mask, idf)
        for i, score in enumerate(scores.tolist()):
            m = int(mask[i].sum())
            q = model.contextualize_query(query[i : i + 1], query_mask[i : i + 1])[0]
            d = model.contextualize_documents(Ragged.from_lists([[0] * m]), Budget(99), document[i, :m])
            assert score == pytest.approx(naive_score(model, q.numpy(), d.numpy(), idf[i].numpy()), rel=1e-9)


@given(st.lists(st.integers(-3, 3), min_size=0, max_size=60), st.integers(1, 4), st.integers(1, 16), st.integers(0, 9))
def test_top_local_max_equals_plain_loops(topography, peaks, distance, padding):
    """Ties, negative and zero scores, documents shorter than the peaks wanted, any padding behind."""
    from pyterrier_longdoc.models.regions import top_local_max

    counts = torch.tensor([[1] * len(topography) + [0] * padding])
    scores = torch.tensor([[float(score) for score in topography] + [0.0] * padding])
    index, values = top_local_max(scores, counts, peaks, distance)
    expected = naive_peaks([float(score) for score in topography], peaks, distance)
    assert (index[0].tolist(), values[0].tolist()) == expected


def test_windows_are_contextualised_with_their_context_only():
    """A token changes the vectors of its own core and of the cores that see it: 5 tokens to each side."""
    model = shaken("log")
    document = torch.randn(200, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    changed = document.clone()
    changed[83] += 1  # in core 80..119, and in the context of 40..79
    tokens = Ragged.from_lists([[0] * 200])
    with torch.no_grad():
        before, after = (model.contextualize_documents(tokens, Budget(50), each) for each in (document, changed))
    moved = ((before - after).abs().amax(1) > 1e-12).nonzero().flatten().tolist()
    assert moved == list(range(40, 120))


def test_the_last_of_41_to_44_tokens_counts():
    """The published code drops up to four tokens behind a full window."""
    model = shaken("salience")
    for length in (41, 42, 43, 44):
        query, query_mask, document, mask, idf = inputs(3, [3], [length])
        changed = document.clone()
        changed[0, -1] = query[0, 0]
        with torch.no_grad():
            scores = [model.score_embeddings(query, query_mask, each, mask, idf).item() for each in (document, changed)]
        assert abs(scores[0] - scores[1]) > 1e-6


@pytest.mark.parametrize("length", [2_000, 4_000, 16_000])
def test_long_documents(length):
    """A document of any length; its end is read: planting the query there changes the score."""
    model = shaken("salience").float()
    query, query_mask, document, mask, idf = inputs(4, [4], [length])
    planted = document.clone()
    planted[0, -8:-4] = query[0]
    scores = []
    with torch.no_grad():
        for each in (document, planted):
            scores.append(model.score_embeddings(query.float(), query_mask, each.float(), mask, idf.float()).item())
        tokens = Ragged.from_lists([[0] * length])
        counts = model.topography(
            model._encode_query_vectors(query.float(), query_mask, idf.float()),
            model.encode_documents(tokens, Budget(2_000), document[0].float())[None], mask,
        )[1]
    assert np.isfinite(scores).all()
    assert counts.shape == (1, length // 2)
    assert counts[0, -1] == 2


def test_queries_longer_than_the_position_table():
    model = shaken("salience")
    query, query_mask, document, mask, idf = inputs(5, [75], [60])
    shortened = query_mask.clone()
    shortened[0, 74] = False
    with torch.no_grad():
        whole = model.score_embeddings(query, query_mask, document, mask, idf)
        cut = model.score_embeddings(query, shortened, document, mask, idf)
    assert whole.isfinite().all()
    assert abs(whole - cut).item() > 1e-6  # the 75th term counts


def test_evidence_adds_up_to_the_score():
    model = shaken("salience")
    query, query_mask, document, mask, idf = inputs(6, [3, 3], [300, 12])
    with torch.no_grad():
        scores = model.score_embeddings(query, query_mask, document, mask, idf)
        queries = model._encode_query_vectors(query, query_mask, idf)
        tokens = Ragged.from_lists([[0] * 300, [0] * 12])
        packed = model.encode_documents(tokens, Budget(500), document[mask]).split([300, 12])
        evidence = model.evidence(queries, torch.nn.utils.rnn.pad_sequence(packed, True), mask)
    torch.testing.assert_close(evidence.weight.sum(1), scores)
    assert (evidence.start[0].sort().values.diff() >= 30).all()
    assert evidence.end.max(1).values.tolist()[1] <= 12
    assert (evidence.start[1] >= 0).any()


def test_idf_starts_the_salience_and_must_fit():
    model = TKLModel(TKLConfig(dims=8, heads=2, vocabulary=3))
    assert not model.has_idf
    model.set_idf(np.array([0.5, 1.5, 2.5]))
    assert model.salience.tolist() == [0.5, 1.5, 2.5]
    assert model.has_idf
    assert model.query_salience(torch.tensor([[2, 0]])).tolist() == [[2.5, 0.5]]
    with pytest.raises(ValueError, match="3 terms"):
        model.set_idf(np.zeros(4))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"saturation": "root"}, "salience"),
        ({"heads": 3}, r"\[1, 2, 4, 8\]"),
        ({"core": 0}, "core must be a whole number of at least 1"),
        ({"stride": 0}, "stride must be a whole number of at least 1"),
        ({"peaks": -1}, "peaks must be a whole number of at least 1"),
        ({"context": -1}, "context"),
        ({"stride": 31}, "stride=31 would skip tokens"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        TKLModel(TKLConfig(**{"dims": 8, "heads": 2, **settings}))
