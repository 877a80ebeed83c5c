"""What training can be told, checked before any work is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import ir_measures

from pyterrier_longdoc.checks import PlainSettings, check_number, check_whole
from pyterrier_longdoc.training.losses import DEFAULT_NEGATIVES, LOSSES, Loss


@dataclass(frozen=True)
class Settings(PlainSettings):
    """Settings of :func:`pyterrier_longdoc.training.fit` that decide which weights come out.

    Attributes:
        loss: ``"hinge"``, ``"ranknet"``, ``"listwise"``, ``"margin_mse"``, or a function as in
            :mod:`~pyterrier_longdoc.training.losses`.
        negatives: Documents that a positive is compared with; 1 by default, 7 for ``"listwise"``.
        min_label: Judgements from here on are relevant; unjudged documents count as 0.
        graded: Whether better documents are also compared with relevant ones of a lower label.
        teacher: Column of the training results with a teacher's scores; ``"margin_mse"`` needs it.
        lr: Learning rate.
        representation_lr: Learning rate of ``model.representation_parameters()``: vectors and their contextualiser. At
            0 they stay as they are, and the kernel rankers encode each document once for the whole training.
        weight_decay: AdamW's; at 0 it is Adam.
        schedule: ``"constant"``, or ``"linear"``: down to 0 at the last step.
        warmup_steps: Steps over which the rates rise from 0.
        clip_norm: Longest gradient; ``None`` does not clip.
        batch_size: Examples of a step, over all processes.
        accumulate: Parts in which a step is computed, one after the other, to save memory; the result is the same.
        epochs: Passes over the examples.
        max_steps: Ends training earlier.
        precision: ``"float32"``, or ``"bfloat16"`` for the encoder; scores and loss are always float32.
        train_doc_tokens: Tokens of a document that are read in training; ``None`` reads as many as in ranking.
        measure: What validation measures: names or objects of ``ir_measures``; the first one decides.
        validate_every: Steps from one validation (and row of the history) to the next; ``None``: at each epoch's end.
        patience: Validations without a new best after which training stops; ``None`` never stops early.
        seed: Of order, negatives and dropout.

    Raises:
        TypeError: If a setting has the wrong type.
        ValueError: If it is out of range.
    """

    #: Names of losses.
    names: ClassVar[tuple[str, ...]] = tuple(LOSSES)

    loss: str | Loss = "hinge"
    negatives: int | None = None
    min_label: int = 1
    graded: bool = False
    teacher: str = "teacher_score"
    lr: float = 1e-3
    representation_lr: float = 1e-4
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup_steps: int = 0
    clip_norm: float | None = None
    batch_size: int = 32
    accumulate: int = 1
    epochs: int = 10
    max_steps: int | None = None
    precision: str = "float32"
    train_doc_tokens: int | None = None
    measure: Any = "nDCG@10"
    validate_every: int | None = None
    patience: int | None = 3
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch_size", "accumulate", "epochs"):
            check_whole(name, getattr(self, name), 1)
        for name in ("negatives", "max_steps", "train_doc_tokens", "validate_every", "patience"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        for name in ("warmup_steps", "seed"):
            check_whole(name, getattr(self, name), 0)
        for name in ("lr", "representation_lr", "weight_decay"):
            check_number(name, getattr(self, name))
        check_number("min_label", self.min_label, -math.inf)
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm)
        if self.clip_norm == 0:
            raise ValueError("clip_norm must be above 0, or None for gradients of any length")
        _one_of("schedule", self.schedule, ("constant", "linear"))
        _one_of("precision", self.precision, ("float32", "bfloat16"))
        if not callable(self.loss):
            _one_of("loss", self.loss, self.names)
        if self.measures == []:
            raise ValueError("measure names no measure; give at least one, such as 'nDCG@10'")

    @classmethod
    def of(cls, **settings: Any) -> Settings:  # noqa: ANN401
        """The same as the constructor, with a message that names the settings there are."""
        names = [field.name for field in fields(cls)]
        unknown = sorted(settings.keys() - set(names))
        if unknown:
            raise TypeError(f"fit has no setting {', '.join(map(repr, unknown))}; it has {', '.join(names)}")
        return cls(**settings)

    @property
    def loss_function(self) -> Loss:
        """The loss as a function."""
        return self.loss if callable(self.loss) else LOSSES[self.loss]

    @property
    def group_size(self) -> int:
        """Documents of an example: the positive and its negatives."""
        default = DEFAULT_NEGATIVES.get(self.loss, 1) if isinstance(self.loss, str) else 1
        return 1 + (self.negatives or default)

    @property
    def measures(self) -> list[ir_measures.Measure]:
        """What validation measures, as objects.

        Raises:
            ValueError: If a name is unknown.
        """
        given = self.measure
        several = isinstance(given, Sequence) and not isinstance(given, str)
        return [parse_measure(each) for each in (given if several else [given])]

    def rate_factor(self, step: int, steps: int) -> float:
        """What the learning rates are multiplied by in step ``step`` (from 0) of ``steps``."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        return (steps - step) / max(1, steps - self.warmup_steps)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON types, to be compared with those of another run."""
        name = self.loss if isinstance(self.loss, str) else getattr(self.loss, "__qualname__", repr(self.loss))
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "loss": name, "measure": [str(measure) for measure in self.measures]}


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:  # noqa: ANN401
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def parse_measure(given: Any) -> ir_measures.Measure:  # noqa: ANN401
    """A measure of ``ir_measures`` from its name, or itself.

    Raises:
        ValueError: If the name is unknown.
    """
    if isinstance(given, ir_measures.Measure):
        return given
    try:
        return ir_measures.parse_measure(str(given))
    except (NameError, ValueError, SyntaxError, AttributeError, KeyError) as error:
        raise ValueError(f"measure {given!r} is none of ir_measures (such as 'nDCG@10', 'RR@10'): {error}") from error
