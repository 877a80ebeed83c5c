"""How likely two tokens of a document are connected: the four patterns of Socialformer (WWW 2022, eq. 1-7).

Three patterns say how central a token is, and connect two tokens by the product of their weights; one depends on their
distance alone. So the n² probabilities of a document follow from four vectors, and no one ever writes them down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from pyterrier_longdoc.checks import check_whole

#: Distance p at which two tokens know each other a quarter as well as neighbours do (eq. 1).
REACH = 50
#: Parts of the patterns in the mixture.
SHARES = {"static_distance": 0.3, "static_centrality": 0.2, "dynamic_distance": 0.3, "dynamic_centrality": 0.2}
PATTERNS = tuple(SHARES)
#: Those that are a product of two weights, in the order of :attr:`SocialWeights.factors`.
PRODUCTS = ("static_centrality", "dynamic_distance", "dynamic_centrality")
SMOOTHINGS = {"identity": lambda values: values, "sqrt": np.sqrt}


@dataclass(frozen=True, eq=False)
class SocialWeights:
    """The patterns of one document and query; without any, all pairs are equally likely ("random edges").

    Weights are scaled to [0, 1] here, each vector by its least and greatest value; a constant one becomes zeros if it
    is 0, else ones. The parts .3, .2, .3, .2 of the patterns that are there are scaled up to a sum of 1.

    Attributes:
        n: Tokens of the document.
        static_distance: Whether P(i, j) = 1 / (1 + |i - j| / 50)² is part of the mixture (eq. 1).
        static_centrality: Weight of each token in the document, such as :func:`tf_idf`, ``[n]`` (eq. 2); off if
            ``None``, as all of these.
        dynamic_distance: How near each token is to the query's terms, such as :func:`query_distance`, ``[n]`` (eq. 4).
        dynamic_centrality: How much each token matters to the query, ``[n]`` (eq. 7).
        smoothing: What is done to weights in [0, 1] (eq. 3): ``"identity"`` or ``"sqrt"``.

    Raises:
        ValueError: If ``n`` is no whole number, a vector has another shape or a value that is not finite, or the
            smoothing is unknown.
    """

    n: int
    static_distance: bool = True
    static_centrality: np.ndarray | None = None
    dynamic_distance: np.ndarray | None = None
    dynamic_centrality: np.ndarray | None = None
    smoothing: str = "identity"

    def __post_init__(self) -> None:
        check_whole("n", self.n, 0)
        object.__setattr__(self, "n", int(self.n))
        if self.smoothing not in SMOOTHINGS:
            raise ValueError(f"smoothing must be one of {', '.join(map(repr, SMOOTHINGS))}, got {self.smoothing!r}")
        for name in PRODUCTS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _checked(name, getattr(self, name), self.n))

    @property
    def patterns(self) -> tuple[str, ...]:
        """Names of the patterns that are on."""
        named = (field.name for field in fields(self) if field.name in SHARES)
        return tuple(name for name in named if getattr(self, name) is not None and getattr(self, name) is not False)

    @cached_property
    def factors(self) -> np.ndarray:
        """Weights of the product patterns times the roots of their parts, float64 ``[3, n]``; zeros where one is off.

        P(i, j) is the sum of ``factors[k, i] * factors[k, j]`` over k, and ``profile[|i - j|]``.
        """
        factors = np.zeros((len(PRODUCTS), self.n))
        for row, name in zip(factors, PRODUCTS, strict=True):
            if getattr(self, name) is not None:
                row[:] = math.sqrt(self._part(name)) * SMOOTHINGS[self.smoothing](scaled(getattr(self, name)))
        return factors

    @cached_property
    def profile(self) -> np.ndarray:
        """What a distance of 0, 1, ... tokens adds to P, float64 ``[n]``."""
        if self.static_distance:
            return self._part("static_distance") * closeness(self.n)
        return np.full(self.n, 0.0 if self.patterns else 1.0)

    def probabilities(self) -> np.ndarray:
        """The mixture before it is scaled to a density, float64 ``[n, n]``; for inspection, as it is as large as that.

        The diagonal is zero: no token is connected to itself.
        """
        place = np.arange(self.n)
        matrix = np.zeros((self.n, self.n))
        for row in self.factors:
            matrix += np.outer(row, row)
        matrix += self.profile[np.abs(place[:, None] - place)] if self.n else 0.0
        np.fill_diagonal(matrix, 0.0)
        return matrix

    def _part(self, name: str) -> float:
        return SHARES[name] / sum(SHARES[each] for each in self.patterns)


def scaled(weights: np.ndarray) -> np.ndarray:
    """Weights by their least and greatest value to [0, 1]; a constant vector becomes zeros if it is 0, else ones."""
    if not len(weights):
        return weights
    least, greatest = weights.min(), weights.max()
    if least == greatest:
        return np.full(len(weights), float(greatest != 0))
    # halves, whose difference cannot overflow
    return np.clip((weights / 2 - least / 2) / (greatest / 2 - least / 2), 0.0, 1.0)


def closeness(n: int) -> np.ndarray:
    """1 / (1 + distance / 50)² for distances from 0 to n - 1, the inverse square law of eq. 1, float64 ``[n]``."""
    return 1 / (1 + np.arange(n) / REACH) ** 2


def tf_idf(tokens: np.ndarray, idf: np.ndarray | None = None) -> np.ndarray:
    """How often each token's term occurs in the document, times its IDF.

    Args:
        tokens: Token ids of the document, ``[n]``.
        idf: IDF of each term of the vocabulary; 1 for all if ``None``.

    Returns:
        float64 ``[n]``.
    """
    terms, place, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    weights = counts.astype(np.float64) if idf is None else counts * np.asarray(idf, np.float64)[terms]
    return weights[place.reshape(-1)]


def query_distance(tokens: np.ndarray, query: np.ndarray) -> np.ndarray:
    """How near each token of a document is to all occurrences of the query's terms (eq. 4).

    Args:
        tokens: Token ids of the document, ``[n]``.
        query: Token ids of the query.

    Returns:
        The sum of 1 / (1 + distance / 50)² over the occurrences, float64 ``[n]``; zeros if there are none.
    """
    n = len(tokens)
    near = closeness(n)
    around = np.concatenate([near[:0:-1], near])  # around[n - 1 + distance]
    weights = np.zeros(n)
    for match in np.flatnonzero(np.isin(tokens, query)):
        weights += around[n - 1 - match : 2 * n - 1 - match]
    return weights


def _checked(name: str, weights: np.ndarray, n: int) -> np.ndarray:
    weights = np.asarray(weights, np.float64)
    if weights.shape != (n,):
        raise ValueError(f"{name} needs one weight for each of {n} tokens, got the shape {weights.shape}")
    if not np.isfinite(weights).all():
        place = int(np.isfinite(weights).argmin())
        raise ValueError(f"{name} holds {weights[place]} for token {place}; weights must be finite")
    return weights
