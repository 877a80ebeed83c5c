"""Undirected graphs over tokens, one bit a pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyterrier_longdoc.graph.compiling import kernel

#: Pairs in a word.
BITS = 64


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A symmetric graph without self-loops.

    Attributes:
        n: Nodes.
        bits: Bit ``j % 64`` of ``bits[i, j // 64]`` says whether i and j are connected, uint64 ``[n, ceil(n / 64)]``.
    """

    n: int
    bits: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> Adjacency:
        """Packs a matrix; its diagonal is left out.

        Args:
            matrix: Symmetric, of booleans or zeros and ones, ``[n, n]``.

        Raises:
            ValueError: If it is anything else.
        """
        matrix = np.asarray(matrix)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"an adjacency matrix must be square, got the shape {matrix.shape}")
        connected = matrix.astype(bool)
        if not np.array_equal(connected, matrix):
            raise ValueError("an adjacency matrix must hold booleans, or zeros and ones")
        if not np.array_equal(connected, connected.T):
            raise ValueError("an adjacency matrix must be symmetric: connections have no direction")
        np.fill_diagonal(connected, False)
        n = len(connected)
        padded = np.zeros((n, -(-n // BITS) * BITS), bool)
        padded[:, :n] = connected
        return cls(n, np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64))

    def dense(self) -> np.ndarray:
        """The graph as a matrix, bool ``[n, n]``."""
        octets = self.bits.astype("<u8").view(np.uint8)
        return np.unpackbits(octets, axis=1, count=self.n, bitorder="little").astype(bool)

    def degrees(self) -> np.ndarray:
        """How many neighbours each node has, int64 ``[n]``."""
        return row_counts(self.bits)

    @property
    def density(self) -> float:
        """Connected pairs among all: 2|E| / (n(n - 1)); 0 for fewer than two nodes."""
        return float(self.degrees().sum() / max(1, self.n * (self.n - 1)))

    def __len__(self) -> int:
        return self.n


@kernel
def count_bits(word):  # noqa: ANN001, ANN201 (of Numba)
    """How many bits of a word are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def row_counts(bits):  # noqa: ANN001, ANN201
    """How many bits of each row are set, int64 ``[rows]``."""
    counts = np.zeros(len(bits), np.int64)
    for row in range(bits.shape[0]):
        for word in range(bits.shape[1]):
            counts[row] += count_bits(bits[row, word])
    return counts


@kernel
def mirror(bits):  # noqa: ANN001, ANN201
    """Completes a graph of which only the pairs i < j are set, in squares of 64 by 64 pairs that are turned over."""
    n, words = bits.shape
    square = np.empty(BITS, np.uint64)
    for top in range(words):
        for left in range(top, words):
            height = min(BITS, n - BITS * top)
            square[:height] = bits[BITS * top : BITS * top + height, left]
            square[height:] = 0
            _transpose(square)
            for row in range(min(BITS, n - BITS * left)):
                bits[BITS * left + row, top] |= square[row]


@kernel
def _transpose(square):  # noqa: ANN001, ANN202
    """Swaps ever smaller blocks off the diagonal of a 64 by 64 square (Warren, Hacker's Delight, 7-3)."""
    size, mask = 32, np.uint64(0x00000000FFFFFFFF)
    while size:
        shift = np.uint64(size)
        for block in range(0, BITS, 2 * size):
            for row in range(block, block + size):
                swap = ((square[row] >> shift) ^ square[row + size]) & mask
                square[row] ^= swap << shift
                square[row + size] ^= swap
        size //= 2
        mask ^= mask << np.uint64(size)
