"""Friend circles: the published partitions, a naive implementation, and graphs of all odd kinds."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_longdoc.graph import Adjacency, SocialWeights, friend_circles, sample_graph

GOLDEN = np.load(Path(__file__).parents[1] / "models" / "golden" / "socialformer_partition.npz")
CASES = sorted(name.removesuffix("/nodes") for name in GOLDEN.files if name.endswith("/nodes"))


def naive(matrix, n_circles, max_nodes, partition, chances):
    """Straight from the definition; ``chances`` orders a centre's neighbours."""
    left, found = matrix & ~np.eye(len(matrix), dtype=bool), []
    while len(found) < n_circles and left.any():
        centre = int(left.sum(1).argmax())
        friends = np.flatnonzero(left[centre])
        best = friends[np.argsort(-chances[centre, friends], kind="stable")][: max_nodes - 1]
        circle = [centre, *sorted(best.tolist())]
        found.append(circle)
        if partition == "node":
            left[circle] = left[:, circle] = False
        else:
            left[np.ix_(circle, circle)] = False
    return found


@pytest.mark.parametrize("case", CASES)
def test_published_partitions(case):
    graph, partition, sizes = case.split("/")
    n_circles, max_nodes = (int(part.strip("Kmax")) for part in sizes.split("_"))
    n = int(GOLDEN[f"{graph}/n"])
    matrix = np.unpackbits(GOLDEN[f"{graph}/adj"])[: n * n].reshape(n, n).astype(bool)
    ends = GOLDEN[f"{case}/offsets"]
    expected = [part.tolist() for part in np.split(GOLDEN[f"{case}/nodes"], ends[1:-1]) if len(part)]
    limit = max_nodes if partition == "node" else max_nodes - 1  # its edge partition takes one node less
    found = [circle.tolist() for circle in friend_circles(matrix, n_circles, max_nodes, partition)]
    full = next((place for place, circle in enumerate(expected) if len(circle) >= limit), len(expected))
    assert found[:full] == expected[:full]
    if full == len(expected):
        assert len(found) == full


@settings(max_examples=60)
@given(
    st.integers(0, 150), st.integers(0, 999), st.floats(0, 1), st.integers(0, 20), st.integers(2, 30),
    st.sampled_from(["node", "edge"]), st.booleans(),
)
def test_against_a_naive_loop(n, seed, density, n_circles, max_nodes, partition, weighted):
    random = np.random.default_rng(seed)
    matrix = np.triu(random.random((n, n)) < density, 1)
    matrix = matrix | matrix.T
    weights = SocialWeights(n, True, random.integers(0, 4, n) * 1.0, random.random(n)) if weighted else None
    chances = weights.probabilities() if weighted else np.zeros((n, n))
    found = friend_circles(matrix, n_circles, max_nodes, partition, weights)
    assert [circle.tolist() for circle in found] == naive(matrix, n_circles, max_nodes, partition, chances)
    assert all(np.issubdtype(circle.dtype, np.integer) for circle in found)


@pytest.mark.parametrize("partition", ["node", "edge"])
def test_a_star_by_hand(partition):
    star = np.zeros((6, 6), bool)
    star[4] = star[:, 4] = True
    star[4, 4] = False
    assert [circle.tolist() for circle in friend_circles(star, partition=partition)] == [[4, 0, 1, 2, 3, 5]]
    found = [circle.tolist() for circle in friend_circles(star, max_nodes=3, partition=partition)]
    # node: the centre is gone after its first circle. edge: it leads again, as long as it has connections.
    assert found == ([[4, 0, 1]] if partition == "node" else [[4, 0, 1], [4, 2, 3], [4, 5]])


def test_the_most_probable_neighbours_are_kept():
    star = np.zeros((5, 5), bool)
    star[0] = star[:, 0] = True
    weights = SocialWeights(5, False, np.array([9.0, 1.0, 7.0, 0.0, 7.0]))
    assert friend_circles(star, 1, 3, weights=weights)[0].tolist() == [0, 2, 4]
    assert friend_circles(star, 1, 4, weights=weights)[0].tolist() == [0, 1, 2, 4]
    assert friend_circles(star, 1, 2, weights=weights)[0].tolist() == [0, 2]  # of equals the first
    assert friend_circles(star, 1, 3)[0].tolist() == [0, 1, 2]


def test_the_graph_is_left_as_it_was():
    graph = sample_graph(SocialWeights(100), 0.2)
    before = graph.bits.copy()
    for partition in ("node", "edge"):
        friend_circles(graph, partition=partition)
        assert (graph.bits == before).all()


def test_more_circles_than_nodes():
    triangle = ~np.eye(3, dtype=bool)
    for partition in ("node", "edge"):
        assert [circle.tolist() for circle in friend_circles(triangle, 16, partition=partition)] == [[0, 1, 2]]


@pytest.mark.parametrize("partition", ["node", "edge"])
def test_no_more_memory_is_asked_for_than_circles_can_fill(partition):
    graph = sample_graph(SocialWeights(3_000), 0.01)
    circles = friend_circles(graph, 10**9, 10**9, partition)
    assert circles[0].base.size <= graph.degrees().sum()
    edges = {(i, j) for circle in circles for i in circle[:1] for j in circle[1:]}
    assert len(edges) == sum(len(circle) - 1 for circle in circles)  # no connection makes two circles


@pytest.mark.parametrize("n", [0, 1, 2, 200])
def test_graphs_without_edges(n):
    assert friend_circles(np.zeros((n, n), bool)) == []
    assert friend_circles(Adjacency.of(np.eye(n))) == []


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 4)), "square"), (np.zeros(3), "square"), (np.full((2, 2), 0.5), "zeros and ones"),
        (np.full((2, 2), np.nan), "zeros and ones"), (np.triu(np.ones((3, 3))), "symmetric"),
    ],
)
def test_matrices_that_are_no_graphs(matrix, message):
    with pytest.raises(ValueError, match=message):
        friend_circles(matrix)


def test_other_bad_input():
    ring = np.roll(np.eye(5, dtype=bool), 1, 0) | np.roll(np.eye(5, dtype=bool), 1, 1)
    with pytest.raises(ValueError, match="partition must be one of 'node', 'edge', got 'nodes'"):
        friend_circles(ring, partition="nodes")
    with pytest.raises(ValueError, match="n_circles must be a whole number of at least 0, got -1"):
        friend_circles(ring, -1)
    with pytest.raises(ValueError, match="max_nodes must be a whole number of at least 2, got 1"):
        friend_circles(ring, max_nodes=1)
    for wrong in ({"n_circles": 2.5}, {"max_nodes": "8"}, {"n_circles": None}, {"max_nodes": True}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a whole number of at least [02], got"):
            friend_circles(ring, **wrong)
    with pytest.raises(ValueError, match="5 nodes, but the weights are of 4"):
        friend_circles(ring, weights=SocialWeights(4))
