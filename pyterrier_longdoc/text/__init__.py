"""From texts to token ids, from token positions back to characters, and from sentences to blocks."""

from pyterrier_longdoc.text.blocks import fill_blocks

__all__ = ["fill_blocks"]
