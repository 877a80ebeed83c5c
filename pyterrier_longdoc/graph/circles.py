"""Friend circles: the best connected node and its neighbours, then the next best of what is left."""

from __future__ import annotations

import numpy as np

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.graph.adjacency import BITS, Adjacency, count_bits, row_counts
from pyterrier_longdoc.graph.compiling import kernel
from pyterrier_longdoc.graph.weights import SocialWeights

PARTITIONS = ("node", "edge")


def friend_circles(
    graph: Adjacency | np.ndarray,
    n_circles: int = 16,
    max_nodes: int = 128,
    partition: str = "node",
    weights: SocialWeights | None = None,
) -> list[np.ndarray]:
    """Cuts a graph into friend circles (Socialformer, section 3.2).

    Args:
        graph: The graph, or its symmetric matrix of booleans.
        n_circles: At most so many circles; fewer where the connections end before.
        max_nodes: Nodes of a circle. Of more neighbours the most probable ones are kept.
        partition: ``"node"``: all nodes of a circle leave the graph. ``"edge"``: only the connections among them do.
        weights: What the graph was drawn from; without it, the first neighbours by position are kept.

    Returns:
        The nodes of each circle, int32: its centre (the node of highest remaining degree, the first of several), then
        its neighbours ascending.

    Raises:
        ValueError: If the matrix or a number is unfit, the partition unknown, or the weights of another document.
    """
    graph = graph if isinstance(graph, Adjacency) else Adjacency.of(graph)
    if partition not in PARTITIONS:
        raise ValueError(f"partition must be one of {', '.join(map(repr, PARTITIONS))}, got {partition!r}")
    check_whole("n_circles", n_circles, 0)
    check_whole("max_nodes", max_nodes, 2)
    if weights is not None and weights.n != graph.n:
        raise ValueError(f"the graph has {graph.n} nodes, but the weights are of {weights.n}")
    factors = np.empty((0, graph.n)) if weights is None else weights.factors
    profile = np.zeros(graph.n) if weights is None else weights.profile
    rounds, max_nodes = int(min(n_circles, graph.n**2)), int(min(max_nodes, max(2, graph.n)))
    whole_nodes = partition == "node"
    bits = graph.bits if whole_nodes else graph.bits.copy()
    nodes, ends = _partition(bits, factors, profile, rounds, max_nodes, whole_nodes)
    return np.split(nodes, ends)[:-1] if len(ends) else []


@kernel
def _partition(bits, factors, profile, n_circles, max_nodes, whole_nodes):  # noqa: ANN001, ANN202
    """Nodes of all circles, one behind the other, and where each ends."""
    degrees, members = row_counts(bits), np.empty(bits.shape[1], np.uint64)
    pairs = degrees.sum() // 2  # a circle of m nodes takes m - 1 of them at least
    n_circles = min(n_circles, pairs)
    nodes, ends = np.empty(min(n_circles * max_nodes, 2 * pairs), np.int32), np.empty(n_circles, np.int64)
    there = ~np.zeros(bits.shape[1], np.uint64)
    count, filled = 0, 0
    while count < n_circles and len(degrees):
        centre = degrees.argmax()
        if degrees[centre] <= 0:
            break
        friends = _set_bits(bits[centre] & there)
        if len(friends) >= max_nodes:
            friends = _most_probable(centre, friends, max_nodes - 1, factors, profile)
        nodes[filled] = centre
        nodes[filled + 1 : filled + 1 + len(friends)] = friends
        circle = nodes[filled : filled + 1 + len(friends)]
        members[:] = 0
        for node in circle:
            members[node // BITS] |= np.uint64(1) << np.uint64(node % BITS)
        if whole_nodes:
            _forget(bits, degrees, circle)
            there &= ~members
        else:
            _disconnect(bits, degrees, circle, members)
        filled += len(circle)
        ends[count] = filled
        count += 1
    return nodes[:filled], ends[:count]


@kernel
def _set_bits(words):  # noqa: ANN001, ANN202
    """Places of the bits that are set, ascending."""
    places, count = np.empty(BITS * len(words), np.int64), 0
    for word in range(len(words)):
        if words[word]:
            for place in range(BITS):
                places[count] = BITS * word + place
                count += np.int64((words[word] >> np.uint64(place)) & np.uint64(1))
    return places[:count]


@kernel
def _most_probable(centre, friends, keep, factors, profile):  # noqa: ANN001, ANN202
    """The friends with the highest P, the first ones of equals, ascending."""
    chances = np.zeros(len(friends))
    for place, friend in enumerate(friends):
        for row in range(len(factors)):
            chances[place] += factors[row, centre] * factors[row, friend]
        chances[place] += profile[abs(centre - friend)]
    return np.sort(friends[np.argsort(-chances, kind="mergesort")[:keep]])


@kernel
def _forget(bits, degrees, circle):  # noqa: ANN001, ANN202
    """Takes nodes out of the degrees of all others; their own fall to 0 or less, so that none is a centre again."""
    for node in circle:
        for word in range(bits.shape[1]):
            start, friends = BITS * word, bits[node, word]
            for place in range(min(BITS, len(degrees) - start)):
                degrees[start + place] -= np.int64((friends >> np.uint64(place)) & np.uint64(1))
    for node in circle:
        degrees[node] = 0


@kernel
def _disconnect(bits, degrees, circle, members):  # noqa: ANN001, ANN202
    for node in circle:
        for word in range(bits.shape[1]):
            degrees[node] -= count_bits(bits[node, word] & members[word])
            bits[node, word] &= ~members[word]
