"""Longformer, QDS-Transformer, BigBird and any long cross-encoder as transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pyterrier_longdoc.checks import check_whole, plain
from pyterrier_longdoc.models.encoder import load_encoder, max_positions
from pyterrier_longdoc.models.lengthen import lengthened
from pyterrier_longdoc.models.sparse import BigBirdModel, LongformerModel, LongModel
from pyterrier_longdoc.passages import FirstP, PassageReRanker
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: Tokens of a query for which an encoder's positions have room unless ``max_doc_tokens`` says otherwise.
_QUERY_ROOM = 64


class LongReRanker(PassageReRanker):
    """Base of the rankers that read a document as one sequence.

    A document is read as far as the encoder's positions reach, less room for a query of 64 tokens; what is longer is
    counted in a warning. A query that needs more room is never cut: it is an error that says which ``max_doc_tokens``
    leaves it enough.

    Args:
        encoder: Directory or hub name of a Hugging Face encoder.
        **settings: As in :class:`~pyterrier_longdoc.passages.PassageReRanker`.
    """

    fixed: ClassVar[dict[str, Any]] = FirstP.fixed
    window_kind: ClassVar[str] = "document"
    weight_meaning: ClassVar[str] = "the score of the document, which is read as one sequence"

    @property
    def default_max_doc_tokens(self) -> int | None:
        """Tokens of a document that are read unless the user says otherwise."""
        positions = max_positions(self.model.encoder)
        room = self.model.config.template.pair.extra + _QUERY_ROOM
        return None if positions is None else max(1, positions - room)


class LongCE(LongReRanker):
    """Any cross-encoder with enough positions, such as those of the ModernBERT family, with its own attention.

    A sequence classifier is used as it is; any other encoder gets a new head, to be trained with ``fit``. One of the
    ModernBERT family computes without padding where the device can: on GPUs, in half precision (``dtype="bfloat16"``).

    Args:
        encoder: Directory or hub name of a Hugging Face encoder or sequence classifier.
        **settings: As in :class:`~pyterrier_longdoc.passages.PassageReRanker`.

    Example::

        long = LongCE("Alibaba-NLP/gte-reranker-modernbert-base", dtype="bfloat16")
        pipeline = bm25 % 100 >> dataset.text_loader() >> long
    """

    model_class = LongModel

    def __init__(self, encoder: str = "Alibaba-NLP/gte-reranker-modernbert-base", **settings: Any) -> None:  # noqa: ANN401
        super().__init__(encoder, **settings)


class _Lengthened(LongReRanker):
    """A ranker whose encoder can be made out of a BERT.

    Args:
        encoder: Directory or hub name of an encoder of the architecture, or of a BERT or RoBERTa, of which one is made;
            see :mod:`pyterrier_longdoc.models.lengthen`.
        positions: Tokens that an encoder made of a BERT can read.
        **settings: As in :class:`~pyterrier_longdoc.passages.PassageReRanker`, and ``made`` below.
    """

    #: Settings of an encoder that is made of a BERT, with their defaults.
    made: ClassVar[dict[str, Any]] = {}

    def __init__(self, encoder: str = DEFAULT_ENCODER, *, positions: int = 4096, **settings: Any) -> None:  # noqa: ANN401
        sizes = {name: settings.pop(name, default) for name, default in self.made.items()}
        self._making = {"positions": positions, **sizes}
        for name, value in self._making.items():
            check_whole(name, value, least=0 if name == "num_random_blocks" else 1)
        self._making = plain(self._making)
        if sizes.get("attention_window", 0) % 2:
            raise ValueError(f"attention_window must be even, half of it on each side; got {sizes['attention_window']}")
        super().__init__(encoder, **settings)

    def load_encoder(self, encoder: str, kind: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Loads an encoder, or makes one; see the class."""
        module, tokenizer = load_encoder(encoder, kind)
        if kind == "base" and module.config.model_type != self.model_class.architecture:
            module = lengthened(module, self.model_class.architecture, **self._making)
        return module, tokenizer


class Longformer(_Lengthened):
    """Longformer with global query tokens: a window of tokens around each token, and the query for all.

    Beltagy et al., arXiv 2004.05150. Its cost grows linearly with a document's length, in steps of the window.

    Args:
        encoder: Directory or hub name of a Longformer (``"allenai/longformer-base-4096"``), or of a BERT or RoBERTa, of
            which one is made; MiniLM, which needs no network, by default.
        positions: Tokens that a Longformer made of a BERT can read.
        attention_window: Its window, half of it on each side.
        global_tokens: ``"query"``, as for question answering, or only the ``"first"``, as for classification.
        **settings: As in :class:`~pyterrier_longdoc.passages.PassageReRanker`.
    """

    model_class = LongformerModel
    made: ClassVar[dict[str, Any]] = {"attention_window": 512}


class QDSTransformer(Longformer):
    """QDS-Transformer: a Longformer in which query tokens and the first token of each sentence are global.

    Jiang et al., Findings of EMNLP 2020. Arguments as in :class:`Longformer`, windows of 128 tokens by default.
    """

    made: ClassVar[dict[str, Any]] = {"attention_window": 128}
    fixed: ClassVar[dict[str, Any]] = {**FirstP.fixed, "unit": "sentence", "global_tokens": "sentences"}


class BigBird(_Lengthened):
    """BigBird: blocks of tokens read their neighbours, the first and last block, and random ones.

    Zaheer et al., NeurIPS 2020. The random blocks are the same in training and afterwards; ``block_seed`` draws others.
    A sequence of too few blocks is read with full attention.

    Args:
        encoder: Directory or hub name of a BigBird (``"google/bigbird-roberta-base"``), or of a BERT or RoBERTa, of
            which one is made; MiniLM, which needs no network, by default.
        positions: Tokens that a BigBird made of a BERT can read.
        block_size: Its tokens in a block.
        num_random_blocks: Random blocks that each of its blocks reads.
        **settings: As in :class:`~pyterrier_longdoc.passages.PassageReRanker`.
    """

    model_class = BigBirdModel
    made: ClassVar[dict[str, Any]] = {"block_size": 64, "num_random_blocks": 3}
