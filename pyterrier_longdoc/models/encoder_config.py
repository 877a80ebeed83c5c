"""What the settings of all models over a Hugging Face encoder begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from pyterrier_longdoc.checks import PlainSettings
from pyterrier_longdoc.text.template import Template


@dataclass(frozen=True)
class EncoderConfig(PlainSettings):
    """An encoder, and how its tokenizer frames what it reads.

    Attributes:
        encoder: Settings of the encoder; see :func:`~pyterrier_longdoc.models.encoder.encoder_settings`.
        template: How special tokens frame a text, or a query and a text; ``None`` for a model that is only given
            sequences that are framed already.
    """

    encoder: dict[str, Any]
    template: Template | None

    @property
    def vocabulary(self) -> int | None:
        """Rows of the encoder's table of token vectors."""
        return self.encoder.get("vocab_size")

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Self:
        """Settings that :meth:`to_dict` wrote."""
        template = settings["template"]
        return cls(**{**settings, "template": template and Template.from_dict(template)})
