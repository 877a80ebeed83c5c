"""Settings of SMITH."""

from __future__ import annotations

from dataclasses import dataclass

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.models.encoder_config import EncoderConfig
from pyterrier_longdoc.text.blocks import check_blocks

#: What of a block's token states becomes its vector: that of [CLS] through a pooler, or their mean.
POOLINGS = ("pooler", "mean")
#: What becomes the document's vector (section 4.1.4).
COMBINATIONS = ("normal", "sum_concat", "mean_concat", "attention")


@dataclass(frozen=True)
class SMITHConfig(EncoderConfig):
    """Settings of SMITH; the defaults are the paper's (section 5.2.3).

    Attributes:
        encoder: Settings of the sentence level Transformer, a Hugging Face configuration with its ``model_type``.
        template: How a block is framed by special tokens.
        sentences: Language of the sentences, or the name of a function of the user's own that splits them.
        block_length: Tokens of a block, special tokens included (L_s).
        max_blocks: Blocks of a document that are read (L_d): 48 blocks are 1,536 tokens.
        splitting: ``"greedy"`` filling, or ``"natural"``: one sentence a block.
        overlong: ``"split"`` continues a sentence that is longer than a block in the next one; ``"truncate"``, as the
            paper does, drops its tail.
        pooling: ``"pooler"``, [CLS] through a tanh dense as in BERT; or ``"mean"`` over all tokens, which most sentence
            encoders were trained for.
        layers: Layers of the document level Transformer (L_2).
        heads: Its attention heads.
        feedforward: Width of its hidden layers.
        combine: ``"normal"``, the document level's output alone; or that behind the sum, the mean or an attention
            weighted sum of the blocks' vectors.
        attention_width: Width V of the attention of ``"attention"``.
        activation: Of the document level: ``"gelu"``, or ``"gelu_pytorch_tanh"`` as in the published code.
        rectified: Whether a ReLU follows the denses before normalisation, as in the published code; cosines are then
            never negative.
        two_towers: Whether queries and documents have a last dense of their own, as in the published code.
        dropout: Of the document level; that of a sentence level that exists already is in ``encoder``.
        scale: Start of the scale of the cosine in training.
        bias: Start of the bias added to it.
        masked_heads: Whether the model holds what only pre-training uses.

    Raises:
        ValueError: If one is out of range.
    """

    sentences: str = "en"
    block_length: int = 32
    max_blocks: int = 48
    splitting: str = "greedy"
    overlong: str = "split"
    pooling: str = "pooler"
    layers: int = 3
    heads: int = 4
    feedforward: int = 1024
    combine: str = "normal"
    attention_width: int = 256
    activation: str = "gelu"
    rectified: bool = False
    two_towers: bool = False
    dropout: float = 0.1
    scale: float = 6.0
    bias: float = -3.0
    masked_heads: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (("combine", COMBINATIONS), ("pooling", POOLINGS)):
            if getattr(self, name) not in allowed:
                known = ", ".join(map(repr, allowed))
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        for name in ("layers", "heads", "feedforward", "attention_width"):
            check_whole(name, getattr(self, name))
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be from 0 to under 1, got {self.dropout!r}")
        self.room  # noqa: B018 (checks the settings of blocks)

    @property
    def room(self) -> int:
        """Tokens of a block, special ones not counted."""
        specials = self.template.single.extra
        return check_blocks(self.block_length, self.max_blocks, specials, self.overlong, self.splitting)
