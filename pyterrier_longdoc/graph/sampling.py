"""Drawing a graph from the probabilities of its pairs: A(i, j) ~ Bernoulli(min(1, s P(i, j))).

The scale s is the one at which the expected density is what was asked for, clipping included. Whether a pair is drawn
follows from a hash of (seed, i, j) alone: there is no state, so any graph can be drawn anywhere, at any time, again.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np

from pyterrier_longdoc.graph.adjacency import BITS, Adjacency, mirror
from pyterrier_longdoc.graph.compiling import kernel
from pyterrier_longdoc.graph.weights import SocialWeights

#: Where single precision ends for factors of a product; far beyond what clips.
_LARGEST = 1e30
#: A scale that lifts every probability over zero to one.
_BOUNDLESS = 1e60
_STEPS = 64
_TOLERANCE = 1e-7


def sample_graph(weights: SocialWeights, density: float = 0.07, seed: int = 0) -> Adjacency:
    """Draws a graph.

    Args:
        weights: How likely the pairs are connected.
        density: Expected share of pairs that are, 1 - sparsity. Where fewer pairs have a probability over zero, all of
            those are connected.
        seed: Any whole number; the last 64 bits of it count.

    Raises:
        ValueError: If the density is not in (0, 1].
        TypeError: If the seed is no whole number.
    """
    if not isinstance(seed, Integral) or isinstance(seed, bool):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    scale = density_scale(weights, density)
    bits = np.zeros((weights.n, -(-weights.n // BITS)), np.uint64)
    _draw(*_single(weights), scale, np.uint64(int(seed) % 2**64), bits)
    mirror(bits)
    return Adjacency(weights.n, bits)


def dense_probabilities(weights: SocialWeights, density: float = 0.07) -> np.ndarray:
    """The probability of each pair, as :func:`sample_graph` draws it: for inspection, as it is float64 ``[n, n]``."""
    scale = density_scale(weights, density)
    return np.minimum(1.0, scale * weights.probabilities())


def density_scale(weights: SocialWeights, density: float) -> float:
    """The scale s at which the sum of min(1, s P) over all pairs is ``density`` times their number.

    It is found by Newton's method from below: the sum is concave in s, and in each step the pairs that are not clipped
    are scaled to what the clipped ones leave. Where nothing is clipped, sums of vectors say it at once.

    Returns:
        The scale; 1 if all probabilities are zero.

    Raises:
        ValueError: If the density is not in (0, 1].
    """
    if not 0 < density <= 1:
        raise ValueError(f"density must be in (0, 1], got {density!r}; it is 1 - sparsity")
    n = weights.n
    target, total = density * n * (n - 1) / 2, _sum_of_pairs(weights)
    if n < 2 or total <= 0:
        return 1.0
    if _possible_pairs(weights) <= target:
        return _BOUNDLESS
    scale = target / total
    if scale * _highest(weights) <= 1:
        return scale
    factors, profile = _single(weights)
    for _ in range(_STEPS):
        clipped, their_sum, _ = _clipped(factors, profile, scale, n, False)
        free = scale * total - their_sum
        if free < 1e-3 * their_sum:  # a difference of large numbers is none
            clipped, _, free = _clipped(factors, profile, scale, n, True)
        if target - clipped - free <= _TOLERANCE * target or free <= 0:
            break
        scale *= (target - clipped) / free
    return scale


def _sum_of_pairs(weights: SocialWeights) -> float:
    products = (weights.factors.sum(axis=1) ** 2 - (weights.factors**2).sum(axis=1)).sum() / 2
    n = weights.n
    return float(products + weights.profile[1:] @ np.arange(n - 1, 0, -1)) if n > 1 else 0.0


def _possible_pairs(weights: SocialWeights) -> float:
    """How many pairs have a probability over zero: those with a factor in common, or all."""
    n = weights.n
    if weights.profile.any():
        return n * (n - 1) / 2
    kinds = np.bincount(2 ** np.arange(len(weights.factors)) @ (weights.factors > 0), minlength=8).astype(float)
    together = np.bitwise_and.outer(np.arange(8), np.arange(8)) > 0
    return float(kinds @ together @ kinds - kinds[1:].sum()) / 2


def _highest(weights: SocialWeights) -> float:
    """A number that no P(i, j) exceeds: each pattern at its best pair."""
    best = np.partition(weights.factors, -2, axis=1)[:, -2:]
    return float(best.prod(axis=1).sum() + weights.profile[1:].max())


def _single(weights: SocialWeights) -> tuple[np.ndarray, np.ndarray]:
    """Factors and profile in single precision with zeros around, so that every word is read whole."""
    room = -(-weights.n // BITS) * BITS
    factors = np.zeros((len(weights.factors), room), np.float32)
    factors[:, : weights.n] = weights.factors
    profile = np.zeros(BITS + room, np.float32)
    profile[BITS : BITS + weights.n] = weights.profile
    return factors, profile


@kernel
def _scaled_row(factors, scale, row):  # noqa: ANN001, ANN202
    first, second, third = scale * factors[0, row], scale * factors[1, row], scale * factors[2, row]
    return np.float32(min(first, _LARGEST)), np.float32(min(second, _LARGEST)), np.float32(min(third, _LARGEST))


@kernel
def _clipped(factors, profile, scale, n, everything):  # noqa: ANN001, ANN202
    """How many pairs have s P over 1, the sum of their s P, and that of the other pairs that were looked at.

    Unless ``everything`` is looked at, words of pairs whose greatest values could not exceed 1 together are passed
    over. Sums are kept in 64 lanes, so that the loop becomes vector instructions although no addition is reordered.
    """
    profile = np.minimum(profile * scale, _LARGEST).astype(np.float32)
    left, middle, right = factors[0], factors[1], factors[2]
    counts, sums, others = np.zeros(BITS, np.int64), np.zeros(BITS), np.zeros(BITS)
    tops = np.zeros((3, len(left) // BITS), np.float32)
    for place in range(tops.size):
        tops.flat[place] = factors.reshape(tops.size, BITS)[place].max()
    for row in range(n - 1):
        a, b, c = _scaled_row(factors, scale, row)
        for word in range((row + 1) // BITS, len(left) // BITS):
            start = word * BITS
            near = profile[BITS + start - row : 2 * BITS + start - row]
            nearest = profile[BITS + max(start - row, 1)]
            if not everything and a * tops[0, word] + b * tops[1, word] + c * tops[2, word] + nearest <= 1:
                continue
            x, y, z = left[start : start + BITS], middle[start : start + BITS], right[start : start + BITS]
            for lane in range(BITS):
                p = a * x[lane] + b * y[lane] + c * z[lane] + near[lane]
                real = (start + lane > row) & (start + lane < n)
                over = real & (p > 1)
                counts[lane] += over
                sums[lane] += p * over
                others[lane] += p * (real & ~over)
    return counts.sum(), sums.sum(), others.sum()


@kernel
def _draw(factors, profile, scale, seed, bits):  # noqa: ANN001, ANN202
    """Sets the bits of the drawn pairs i < j, a word of 64 pairs at a time."""
    n, words = bits.shape
    step = np.float32(2.0**-24)
    hits = np.empty(BITS, np.uint8)
    octets = hits.view(np.uint64)
    profile = np.minimum(profile * scale, _LARGEST).astype(np.float32)
    left, middle, right = factors[0], factors[1], factors[2]
    for row in range(n - 1):
        a, b, c = _scaled_row(factors, scale, row)
        high, low = _row_keys(seed, row)
        first = (row + 1) // BITS
        for word in range(first, words):
            start = word * BITS
            x, y, z = left[start : start + BITS], middle[start : start + BITS], right[start : start + BITS]
            near = profile[BITS + start - row : 2 * BITS + start - row]
            for lane in range(BITS):
                p = a * x[lane] + b * y[lane] + c * z[lane] + near[lane]
                hits[lane] = np.float32(np.int32(_mixed(start + lane, high, low) >> np.uint32(8))) * step < p
            bits[row, word] = _packed(octets)
        bits[row, first] &= ~((np.uint64(1) << np.uint64((row + 1) % BITS)) - np.uint64(1))
        if n % BITS:
            bits[row, words - 1] &= (np.uint64(1) << np.uint64(n % BITS)) - np.uint64(1)


@kernel
def _mixed(column, high, low):  # noqa: ANN001, ANN202
    """32 random bits of a pair: the column, mixed with two keys of its row (multiply and xor-shift, as in Murmur)."""
    x = np.uint32(np.uint32(column) * np.uint32(0x9E3779B1) + high)
    x ^= x >> np.uint32(16)
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x ^= (x >> np.uint32(15)) ^ low
    x = np.uint32(x * np.uint32(0x846CA68B))
    return x ^ (x >> np.uint32(16))


@kernel
def _row_keys(seed, row):  # noqa: ANN001, ANN202
    """Two keys of 32 bits from the seed and a row (SplitMix64)."""
    x = seed + np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return np.uint32(x >> np.uint64(32)), np.uint32(x & np.uint64(0xFFFFFFFF))


@kernel
def _packed(octets):  # noqa: ANN001, ANN202
    """64 bytes of 0 or 1, eight to a word, as 64 bits."""
    word = np.uint64(0)
    for place in range(8):
        word |= ((octets[place] * np.uint64(0x0102040810204080)) >> np.uint64(56)) << np.uint64(8 * place)
    return word
