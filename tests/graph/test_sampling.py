"""Sampling: exact densities, draws without a state, and the same graphs from threads, forks and plain Python."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyterrier_longdoc.graph import Adjacency, SocialWeights, dense_probabilities, friend_circles, sample_graph
from pyterrier_longdoc.graph import adjacency as adjacency_module
from pyterrier_longdoc.graph import circles as circles_module
from pyterrier_longdoc.graph import sampling as sampling_module
from pyterrier_longdoc.graph.compiling import kernel


def some_weights(n: int, seed: int = 0, **changed) -> SocialWeights:
    random = np.random.default_rng(seed)
    static, near, central = random.random((3, n)) ** 4
    vectors = {"static_centrality": static, "dynamic_distance": near, "dynamic_centrality": central}
    return SocialWeights(n, **{**vectors, **changed})


def pairs_of(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.triu_indices(len(matrix), 1)]


def naive_scale(pairs: np.ndarray, target: float) -> float:
    low, high = 0.0, 1.0
    while np.minimum(1, high * pairs).sum() < target:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * pairs).sum() < target else (low, middle)
    return high


# Density --------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.integers(2, 300), st.floats(0.001, 0.95), st.integers(0, 99),
    st.sampled_from(["all", "distance", "peaks", "even", "cliff"]),
)
@example(6, 0.94, 0, "cliff")  # of 15 pairs, 10 have a probability over zero
@example(2, 0.9, 0, "cliff")
def test_the_expected_density_is_exact_after_clipping(n, density, seed, kind):
    weights = {
        "all": lambda: some_weights(n, seed),
        "distance": lambda: SocialWeights(n),
        "peaks": lambda: SocialWeights(n, True, np.random.default_rng(seed).random(n) ** 30),
        "cliff": lambda: SocialWeights(n, False, np.where(np.arange(n) % 5 == 0, 1.0, 1e-6 * (np.arange(n) + 1) / n)),
        "even": lambda: SocialWeights(n, False),
    }[kind]()
    matrix = dense_probabilities(weights, density)
    assert matrix.dtype == np.float64
    assert (matrix == matrix.T).all() and (matrix.diagonal() == 0).all()
    assert matrix.min() >= 0 and matrix.max() <= 1
    pairs = pairs_of(weights.probabilities())
    possible = (pairs > 0).mean()
    assert pairs_of(matrix).mean() == pytest.approx(min(density, possible), rel=2e-6)
    if density < possible:
        scale = naive_scale(pairs, density * len(pairs))
        np.testing.assert_allclose(matrix, np.minimum(1, scale * weights.probabilities()), rtol=2e-5, atol=1e-9)


def test_where_pairs_run_out_all_that_there_are_are_connected():
    near = np.zeros(50)
    near[[3, 7, 20]] = [1.0, 1e-9, 0.5]
    weights = SocialWeights(50, False, dynamic_distance=near)  # three pairs with a probability over zero
    graph = sample_graph(weights, 0.5)
    assert np.argwhere(np.triu(graph.dense())).tolist() == [[3, 7], [3, 20], [7, 20]]
    assert np.argwhere(np.triu(dense_probabilities(weights, 0.5))).tolist() == [[3, 7], [3, 20], [7, 20]]


@pytest.mark.parametrize("kind", ["all", "distance", "even"])
def test_density_over_200_documents_is_within_three_standard_errors(kind):
    random, edges, expected, variance = np.random.default_rng(1), 0, 0.0, 0.0
    for seed, n in enumerate(random.integers(2, 400, 200)):
        weights = some_weights(n, seed) if kind == "all" else SocialWeights(n, kind == "distance")
        chances = pairs_of(dense_probabilities(weights))
        edges += sample_graph(weights, seed=seed).degrees().sum() // 2
        expected += 0.07 * len(chances)
        variance += (chances * (1 - chances)).sum()
    assert abs(edges - expected) < 3 * np.sqrt(variance)


def test_each_pair_is_drawn_as_often_as_its_probability_says():
    weights, draws = some_weights(70, 5), 600
    counts = sum(sample_graph(weights, 0.2, seed).dense().astype(int) for seed in range(draws))
    chances = dense_probabilities(weights, 0.2)
    error = np.sqrt(draws * np.maximum(pairs_of(chances * (1 - chances)), 1e-3))
    deviation = pairs_of(counts - draws * chances) / error
    assert abs(deviation.mean()) < 0.1
    assert deviation.std() == pytest.approx(1, abs=0.05)
    assert abs(deviation).max() < 5.5


def test_draws_of_neighbouring_pairs_and_seeds_are_independent():
    draws = [sample_graph(SocialWeights(600, False), 0.5, seed).dense() for seed in (0, 1, 2**40)]
    upper = np.triu(np.ones((600, 600), bool), 2)
    first = draws[0].astype(float) - 0.5
    shifted = [np.roll(first, shift, (0, 1)) for shift in ((1, 0), (0, 1), (1, 1), (1, -1))]
    for other in (*shifted, draws[1] - 0.5, draws[2] - 0.5):
        correlation = (first * other)[upper][600:].mean() * 4
        assert abs(correlation) < 4 / np.sqrt(upper.sum())


# Graphs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 128, 200])
def test_graphs_are_symmetric_without_loops(n):
    graph = sample_graph(some_weights(n), 0.3, seed=4)
    matrix = graph.dense()
    assert len(graph) == n
    assert matrix.shape == (n, n) and matrix.dtype == bool
    assert (matrix == matrix.T).all() and not matrix.diagonal().any()
    assert graph.degrees().tolist() == matrix.sum(0).tolist()
    assert graph.density == (matrix.sum() / (n * (n - 1)) if n > 1 else 0)
    assert (Adjacency.of(matrix).bits == graph.bits).all()


def test_a_seed_makes_a_graph():
    weights = some_weights(120)
    first, again, other = (sample_graph(weights, seed=seed).dense() for seed in (7, 7, 8))
    assert (first == again).all()
    assert (first != other).any()
    assert (sample_graph(weights, seed=7 - 2**64).dense() == first).all()


def test_the_graph_of_a_longer_document_begins_alike():
    """Draws follow from (seed, i, j): the same probabilities give the same pairs in any document."""
    long, short = (sample_graph(SocialWeights(n, False), 0.3, 5).dense() for n in (150, 90))
    assert (long[:90, :90] == short).all()


def _drawn(seed: int) -> list:
    weights = some_weights(300, seed)
    graph = sample_graph(weights, seed=seed)
    return [graph.bits.tobytes(), *(circle.tolist() for circle in friend_circles(graph, weights=weights))]


def test_threads_and_forked_workers_draw_the_same_graphs():
    expected = [_drawn(seed) for seed in range(6)]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(_drawn, range(6))) == expected
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert workers.map(_drawn, range(6)) == expected


def test_forked_workers_of_a_data_loader_draw_the_same_graphs():
    from torch.utils.data import DataLoader

    loader = DataLoader(range(6), batch_size=None, num_workers=2, collate_fn=_drawn, multiprocessing_context="fork")
    assert list(loader) == [_drawn(seed) for seed in range(6)]


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_kernels_as_plain_python_give_the_same_bits():
    weights = some_weights(70, 3, dynamic_distance=np.r_[np.zeros(60), np.ones(10)])
    single = sampling_module._single(weights)
    compiled, plain = (np.zeros((70, 2), np.uint64) for _ in range(2))
    sampling_module._draw(*single, 5.5, np.uint64(3), compiled)
    sampling_module._draw.py_func(*single, 5.5, np.uint64(3), plain)
    assert (compiled == plain).all() and compiled.any()
    adjacency_module.mirror(compiled)
    adjacency_module.mirror.py_func(plain)
    assert (compiled == plain).all()
    assert adjacency_module.row_counts.py_func(plain).tolist() == Adjacency(70, compiled).degrees().tolist()
    assert sampling_module._clipped.py_func(*single, 5.5, 70, True) == sampling_module._clipped(*single, 5.5, 70, True)
    for whole_nodes in (True, False):
        arguments = (weights.factors, weights.profile, 5, 6, whole_nodes)
        first = circles_module._partition(compiled.copy(), *arguments)
        second = circles_module._partition.py_func(plain.copy(), *arguments)
        assert [part.tolist() for part in first] == [part.tolist() for part in second]


def test_without_a_place_for_its_cache_numba_compiles_anyway(monkeypatch):
    import numba

    def refuse(*args, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr("pyterrier_longdoc.graph.compiling.njit", refuse)
    assert kernel(lambda value: value + 1)(4) == 5


def test_it_imports_where_nothing_can_be_written(tmp_path):
    """As in a container with read-only packages and no home; whoever may write anywhere is refused by Numba itself."""
    tmp_path.chmod(0o500)
    code = (
        "from numba.core.caching import CacheImpl; CacheImpl._locator_classes = []\n"
        "from pyterrier_longdoc.graph import *; print(sample_graph(SocialWeights(40, False), .5).degrees().sum())"
    )
    environment = {"PATH": "/usr/bin", "NUMBA_CACHE_DIR": str(tmp_path / "none"), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sample_graph(SocialWeights(40, False), 0.5).degrees().sum()


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [0, -0.1, 1.01, np.nan])
def test_densities_out_of_range(density):
    for function in (sample_graph, dense_probabilities):
        with pytest.raises(ValueError, match=r"density must be in \(0, 1\]"):
            function(SocialWeights(5), density)


@pytest.mark.parametrize("seed", [None, 1.5, "1", True])
def test_seeds_are_whole_numbers(seed):
    with pytest.raises(TypeError, match="seed must be a whole number"):
        sample_graph(SocialWeights(5), seed=seed)


@pytest.mark.parametrize("vector", [np.zeros(30), np.ones(30), np.full(30, -3.0)])
def test_constant_weights(vector):
    """All zero: no pattern speaks for any pair; else all pairs are alike."""
    weights = SocialWeights(30, False, vector, vector, vector)
    chances = set(pairs_of(dense_probabilities(weights, 0.2)))
    assert len(chances) == 1
    assert chances.pop() == (pytest.approx(0.2) if vector.any() else 0)
    assert vector.any() or not sample_graph(weights, 0.2).degrees().any()
