"""Settings of Socialformer: of its graphs and groups, and of the model that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from pyterrier_longdoc.checks import PlainSettings, check_whole
from pyterrier_longdoc.graph import PATTERNS
from pyterrier_longdoc.graph.circles import PARTITIONS
from pyterrier_longdoc.graph.weights import SMOOTHINGS
from pyterrier_longdoc.models.encoder_config import EncoderConfig

_AGGREGATIONS = ("max", "mean", "attention", "transformer")
_CENTRALITIES = ("attention", "cosine", "custom")


@dataclass(frozen=True, kw_only=True)
class GroupSettings(PlainSettings):
    """Settings of graphs and groups.

    Attributes:
        passage_tokens: Tokens of a passage.
        patterns: Names among :data:`~pyterrier_longdoc.graph.PATTERNS`; without any, all pairs of tokens are equally
            likely.
        sparsity: Share of the pairs of tokens that are not connected.
        smoothing: See :class:`~pyterrier_longdoc.graph.SocialWeights`.
        partition: See :func:`~pyterrier_longdoc.graph.friend_circles`.
        n_circles: At most so many circles; 0 leaves the passages alone.
        max_nodes: Tokens of a circle.
        seed: Seed of the graphs, a number of 64 bits.

    Raises:
        ValueError: If a setting is out of range.
        TypeError: If the sparsity is no number.
    """

    passage_tokens: int = 128
    patterns: tuple[str, ...] = PATTERNS
    sparsity: float = 0.93
    smoothing: str = "identity"
    partition: str = "node"
    n_circles: int = 16
    max_nodes: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        named = isinstance(self.patterns, Iterable) and not isinstance(self.patterns, str)
        if not named or not set(self.patterns) <= set(PATTERNS):
            raise ValueError(f"patterns must be a list of names among {', '.join(PATTERNS)}, got {self.patterns!r}")
        self._set("patterns", tuple(name for name in PATTERNS if name in self.patterns))
        if not isinstance(self.sparsity, Real) or isinstance(self.sparsity, bool):
            raise TypeError(f"sparsity must be a number in [0, 1), got {self.sparsity!r}")
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity must be in [0, 1), got {self.sparsity!r}")
        self._set("sparsity", float(self.sparsity))
        self._check_choices(smoothing=tuple(SMOOTHINGS), partition=PARTITIONS)
        self._check_numbers(passage_tokens=1, n_circles=0, max_nodes=2, seed=-(2**63))
        if self.seed >= 2**63:
            raise ValueError(f"seed must be a number of 64 bits, got {self.seed}")

    def _set(self, name: str, value: Any) -> None:  # noqa: ANN401
        object.__setattr__(self, name, value)

    def _check_choices(self, **choices: tuple[str, ...]) -> None:
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {getattr(self, name)!r}")

    def _check_numbers(self, **least: int) -> None:
        for name, smallest in least.items():
            check_whole(name, getattr(self, name), smallest)


@dataclass(frozen=True, kw_only=True)
class SocialformerConfig(GroupSettings, EncoderConfig):
    """Settings of Socialformer; the defaults are the paper's. Those of graphs are in :class:`GroupSettings`.

    Attributes:
        centrality: Dynamic centrality by ``"attention"`` of a frozen copy of the encoder, by ``"cosine"`` alone, which
            costs next to nothing, or by a function of the user's own (``"custom"``).
        exchange: Whether groups hear of each other; without, this is PARADE over passages and circles.
        exchange_heads: Attention heads of the inter-circle layer.
        exchange_hidden: Width of its hidden layer.
        central: Which state stands for a circle: ``"cls"``, or ``"node"`` for its central token (as the paper's text).
        aggregation: ``"max"``, ``"mean"``, ``"attention"`` or ``"transformer"``.

    Raises:
        ValueError: If a setting is out of range.
        TypeError: If the sparsity is no number, or ``exchange`` neither ``True`` nor ``False``.
    """

    centrality: str = "attention"
    exchange: bool = True
    exchange_heads: int = 4
    exchange_hidden: int = 512
    central: str = "cls"
    aggregation: str = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_choices(centrality=_CENTRALITIES, central=("cls", "node"), aggregation=_AGGREGATIONS)
        self._check_numbers(exchange_heads=1, exchange_hidden=1)
        if not isinstance(self.exchange, bool):
            raise TypeError(f"exchange must be True or False, got {self.exchange!r}")
        if self.exchange and self.encoder["hidden_size"] % self.exchange_heads:
            raise ValueError(
                f"exchange_heads={self.exchange_heads} does not divide the encoder's {self.encoder['hidden_size']} "
                "dimensions"
            )
