"""Settings of CoLDE."""

from __future__ import annotations

from dataclasses import dataclass

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.models.encoder_config import EncoderConfig
from pyterrier_longdoc.models.match_bert import POOLINGS
from pyterrier_longdoc.text.sections import check_count


@dataclass(frozen=True)
class CoLDEConfig(EncoderConfig):
    """Settings of CoLDE; the defaults are the paper's (sections 3 and 4.1.2).

    Attributes:
        encoder: Settings of the chunks' Transformer, a Hugging Face configuration with its ``model_type``.
        template: How a chunk is framed by special tokens.
        sentences: Language of the documents (ISO 639-1), between whose sentences sections may begin.
        sections: Sections of a document, 1 to 5.
        chunk_tokens: Tokens of a chunk, special tokens included.
        chunk_numbers: Chunks of a section that are told apart by an embedding of their own; all later ones share the
            last one. A section may have any number of chunks.
        pooling: What of the encoder's output is a chunk's vector: ``"pooler"`` (the paper), ``"cls"`` or ``"mean"``, as
            in :class:`~pyterrier_longdoc.models.match_bert.MatchBERTConfig`.
        max_tokens: Tokens of a text, query or document, that are read; ``None`` for all.
        heads: Heads of the chunkwise attention.
        hidden: States of the LSTM in each direction.
        dims: Length of the vectors of sections and documents.
        augmentation: Without it (CoLDE-Aug of Table 2) a document is one section, and chunks do not know their place.
        lstm: Without it (CoLDE-LSTM) a section is the mean of its chunks, which do not look at each other.

    Raises:
        ValueError: If one is out of range.
    """

    sentences: str = "en"
    sections: int = 2
    chunk_tokens: int = 512
    chunk_numbers: int = 64
    pooling: str = "pooler"
    max_tokens: int | None = None
    heads: int = 4
    hidden: int = 256
    dims: int = 256
    augmentation: bool = True
    lstm: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.sections)
        for name in ("chunk_tokens", "chunk_numbers", "max_tokens", "heads", "hidden", "dims"):
            if name != "max_tokens" or self.max_tokens is not None:
                check_whole(name, getattr(self, name))
        if self.room < 1:
            raise ValueError(f"chunk_tokens={self.chunk_tokens} leaves no room beside the special tokens")
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(map(repr, POOLINGS))}, got {self.pooling!r}")

    @property
    def room(self) -> int:
        """Tokens of a chunk, special tokens not counted."""
        return self.chunk_tokens - self.template.single.extra

    @property
    def kind(self) -> str:
        """The kind of encoder; see :func:`~pyterrier_longdoc.models.encoder.build_encoder`."""
        return "pooled" if self.pooling == "pooler" else "base"

    @property
    def section_count(self) -> int:
        """Sections that documents are cut into."""
        return self.sections if self.augmentation else 1
