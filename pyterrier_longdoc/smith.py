"""SMITH as a transformer: long documents as queries, as results, and as vectors of an index."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.dual_encoder import DualEncoder
from pyterrier_longdoc.explain import WeightedWindow
from pyterrier_longdoc.explain.evidence import occlusion_evidence
from pyterrier_longdoc.models.encoder import encoder_settings, load_encoder
from pyterrier_longdoc.models.smith import SMITHModel
from pyterrier_longdoc.models.smith_settings import SMITHConfig
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.blocks import SPLITTINGS, block_windows, padding_share
from pyterrier_longdoc.text.sentences import SentenceSplitter, Structured, splitter_of, tokenize_sentences
from pyterrier_longdoc.text.template import Template
from pyterrier_longdoc.text.tokens import load_tokenizer
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, encoder_path

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pyterrier_longdoc.explain.parts import Parts
    from pyterrier_longdoc.training.pretraining import Corpus

#: The paper's sentence level (section 5.2.3).
_SIZES = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 1024}


class SMITH(DualEncoder):
    """SMITH: documents encoded by sentence blocks, then as sequences of blocks (Yang et al., CIKM 2020).

    Queries are encoded as documents are, and may be documents. Of each text ``max_blocks`` blocks of ``block_length``
    tokens are read, 1,536 tokens unless you say otherwise; a warning counts the others. There are three ways to begin:

    * ``SMITH()``: random weights in the paper's sizes, to be pre-trained by :meth:`pretrain` (SMITH-WP+SP) or not
      (SMITH-NP);
    * ``SMITH("google-bert/bert-base-uncased", block_length=128, max_blocks=4)``: the sentence level Transformer from a
      Hugging Face encoder (SMITH-Short), the document level from random weights; ``pooling="mean"`` and
      ``combine="sum_concat"`` begin closer to what a sentence encoder knows;
    * :meth:`from_pretrained`, or :meth:`from_tf_checkpoint` for the checkpoint that the paper's authors released.

    Args:
        encoder: Directory or hub name of a Hugging Face encoder for the sentence level; ``None`` for random weights.
        tokenizer: Without an ``encoder``: a fast tokenizer, or the directory or hub name of one; that of MiniLM, BERT's
            English word pieces, by default.
        sentence_layers: Without an ``encoder``: layers of the sentence level (L_1).
        width: Width of all vectors.
        sentence_heads: Attention heads of the sentence level.
        sentence_feedforward: Width of its hidden layers.
        sentences: Language of the documents (ISO 639-1), whose sentences the library sentencex finds; or a function
            from a text to its sentences, which has to be given to :meth:`from_pretrained` again.
        seed: Seed of all random weights.
        **settings: Fields of :class:`~pyterrier_longdoc.models.smith_settings.SMITHConfig`, and options of
            :class:`~pyterrier_longdoc.reranker.ReRanker`.

    Raises:
        ValueError: If there is no such encoder, or a setting is out of range.
        TypeError: If there is no such setting.

    Example::

        smith = SMITH()
        smith.pretrain(dataset.get_corpus_iter(), output_dir="smith-wp-sp")
        smith.fit(train_results, train_qrels, valid_results, valid_qrels)
        (smith >> FlexIndex("vectors")).index(dataset.get_corpus_iter())
    """

    model_class = SMITHModel
    model: SMITHModel
    #: The paper's (section 5.2.3); it trains on pairs.
    fit_defaults: ClassVar[dict[str, Any]] = {
        "loss": "listwise", "lr": 5e-5, "representation_lr": 5e-5, "batch_size": 32, "clip_norm": 1.0,
    }
    window_kind: ClassVar[str] = "block"
    weight_meaning: ClassVar[str] = "what the cosine would lose without the block"

    def __init__(
        self,
        encoder: str | None = None,
        *,
        tokenizer: str | PreTrainedTokenizerBase | None = None,
        sentence_layers: int = 6,
        width: int = 256,
        sentence_heads: int = 4,
        sentence_feedforward: int = 1024,
        sentences: str | SentenceSplitter = "en",
        seed: int = 0,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        chosen = _config_settings(settings)
        name, _ = splitter_of(sentences)
        sizes = {
            "hidden_size": width, "num_hidden_layers": sentence_layers, "num_attention_heads": sentence_heads,
            "intermediate_size": sentence_feedforward,
        }
        module, pooler = None, None
        if encoder is not None:
            if sizes != _SIZES or tokenizer is not None:
                raise ValueError(f"{encoder} has sizes and a tokenizer of its own: leave out what is for encoder=None")
            module, pooler, tokenizer = _pretrained(encoder)
            sizes = encoder_settings(module)
        else:
            tokenizer = _tokenizer(tokenizer)
            sizes |= _bert(tokenizer, **chosen)
        config = SMITHConfig(sizes, Template.of(tokenizer), name, **chosen)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = SMITHModel(config, module)
        if encoder is not None:
            torch.nn.init.eye_(model.sentence_dense.weight)  # so that nothing that the encoder knows is lost
        if pooler is not None and model.sentence_pooler is not None:
            model.sentence_pooler.load_state_dict(pooler.state_dict())
        label = encoder or "smith"
        super().__init__(model, tokenizer, model_name=f"{label}#{fingerprint(model)}", **settings)
        self._sentences = sentences

    @classmethod
    def from_model(
        cls,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        *,
        sentences: str | SentenceSplitter | None = None,
        **options: Any,  # noqa: ANN401
    ) -> SMITH:
        """Wraps a model that exists already.

        Args:
            model: The model.
            tokenizer: Its tokenizer.
            sentences: The function that splits sentences, if the model was made with one.
            **options: As in :class:`~pyterrier_longdoc.reranker.ReRanker`.

        Raises:
            ValueError: If the model was made with other sentences.
        """
        sentences = model.config.sentences if sentences is None else sentences
        name, _ = splitter_of(sentences)
        if name != model.config.sentences:
            raise ValueError(f"the model reads sentences={model.config.sentences!r}, not {name!r}")
        ranker = super().from_model(model, tokenizer, **options)
        ranker._sentences = sentences
        return ranker

    @classmethod
    def from_tf_checkpoint(
        cls, path: str | Path, tokenizer: str | PreTrainedTokenizerBase | None = None, heads: int = 4, **options: Any  # noqa: ANN401
    ) -> SMITH:
        """Loads a checkpoint of the published TensorFlow code, such as the released ``smith_wsp_pretrain_ckpt``.

        TensorFlow is needed to read it, and only for that: afterwards :meth:`save` it.

        Args:
            path: Prefix of the checkpoint's files, or the directory that holds them.
            tokenizer: Its tokenizer; MiniLM's, whose word pieces are those of BERT's uncased English vocabulary, by
                default.
            heads: Attention heads, which the checkpoint does not tell.
            **options: Settings of :class:`~pyterrier_longdoc.models.smith_settings.SMITHConfig`, and options of
                :class:`~pyterrier_longdoc.reranker.ReRanker`.

        Raises:
            ImportError: If there is no TensorFlow.
            ValueError: If it is no checkpoint of SMITH, or the vocabulary is not the tokenizer's.
        """
        from pyterrier_longdoc.models.smith_tensorflow import published_template, read_tf_variables
        from pyterrier_longdoc.text.tokens import check_vocabulary

        settings, tokenizer = _config_settings(options), _tokenizer(tokenizer)
        template = published_template(tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
        model = SMITHModel.from_tf_variables(read_tf_variables(path), heads, template=template, **settings)
        check_vocabulary(tokenizer, model.config.vocabulary)
        return cls.from_model(model, tokenizer, **{"model_name": f"{Path(path).name}#{fingerprint(model)}", **options})

    def pretrain(self, corpus: Corpus, validation: Corpus | None = None, **settings: Any) -> SMITH:  # noqa: ANN401
        """Pre-trains on plain texts: to name masked words, and to tell masked sentence blocks from others.

        Both losses are added (eq. 7). ``history`` then has their means and accuracies: ``word_loss``,
        ``word_accuracy``, ``block_loss``, ``block_accuracy``, and with a validation the same on held-out documents. The
        model keeps what predicts words and blocks, so that pre-training can go on.

        Args:
            corpus: Texts, rows with ``text_field`` as ``dataset.get_corpus_iter()`` gives, or a frame. Their tokens
                are kept in memory, 5 bytes each, their texts are not.
            validation: Held-out texts; the weights with the lowest loss on them are the result.
            **settings: ``masked_words=.15``, the share of words; ``masked_blocks=2``, the blocks of each document,
                with 0 for SMITH-WP; ``output_dir``, ``save_every``, ``resume`` and ``verbose`` as in
                :func:`~pyterrier_longdoc.training.fit`; and
                :class:`~pyterrier_longdoc.training.settings.Settings`, with the paper's values as defaults.

        Returns:
            The ranker itself.

        Raises:
            ValueError: If there is no text, a setting is out of range, or the tokenizer has no mask.
            TypeError: If there is no such setting.
        """
        from pyterrier_longdoc.training.pretraining import pretrain

        return pretrain(self, corpus, validation, **settings)

    def budget(self) -> Budget:
        """That of all rankers; on a CPU half as much: no slower for blocks, with half the memory."""
        budget = super().budget()
        narrow = self.token_budget is None and self.devices[0] == "cpu"
        return Budget(budget.tokens // 2) if narrow else budget

    # Reading texts ----------------------------------------------------------------------------------------------------

    def tokenize(self, texts: Iterable[str]) -> Structured:
        """Token ids of the blocks of texts that the model reads, with their sentences; a warning counts the others."""
        return self._within_blocks(self._all_tokens(texts))

    def _all_tokens(self, texts: Iterable[str]) -> Structured:
        return tokenize_sentences(self.tokenizer, texts, splitter_of(self._sentences)[1])

    def _within_blocks(self, tokens: Structured) -> Structured:
        config = self.model.config
        windows = self.model.blocks(tokens)
        rows = windows.by_document(len(tokens))
        rank = np.arange(len(windows)) - np.repeat(rows.offsets[:-1], rows.lengths)
        read = windows.widths * (rank < config.max_blocks)
        if read.sum() == len(tokens.values):
            return tokens
        cut = np.bincount(windows.document, read, len(tokens)) < tokens.lengths
        reason = " or have a sentence longer than a block" if config.overlong == "truncate" else ""
        unread = 1 - read.sum() / len(tokens.values)
        warnings.warn(
            f"{self}: {int(cut.sum())} of {len(tokens)} texts are longer than max_blocks={config.max_blocks} blocks of "
            f"{config.block_length} tokens{reason}; {unread:.1%} of all tokens are not read",
            stacklevel=5,
        )
        last = windows.take(np.flatnonzero(rank == config.max_blocks - 1))
        counts = tokens.lengths.copy()
        counts[last.document] = last.positions.max(axis=1, initial=-1) + 1
        return tokens.head(counts)

    def splittings(self, texts: Sequence[str]) -> pd.DataFrame:
        """How much of its blocks is padding, if each is filled up to ``block_length`` (Figure 3).

        Args:
            texts: Documents; they are read to their end.

        Returns:
            One row for ``"greedy"`` and one for ``"natural"`` splitting: ``splitting``, ``blocks``, ``tokens`` (special
            ones not counted), ``padding`` (share of the blocks' room that is empty) and ``padding_computed`` (the share
            of what this package computes, where blocks of like lengths run together).
        """
        tokens, model = self._all_tokens(texts), self.model
        rows = []
        for splitting in SPLITTINGS:
            windows = block_windows(tokens.starts(), tokens.lengths, model.room, model.config.overlong, splitting)
            widths = windows.widths
            rows.append(
                {
                    "splitting": splitting, "blocks": len(widths), "tokens": int(widths.sum()),
                    "padding": padding_share(widths, model.room),
                    "padding_computed": model.padding_computed(widths, self.budget()),
                }
            )
        return pd.DataFrame(rows)

    def evidence(self, queries: list[str], documents: list[str], pairs: np.ndarray) -> list[list[WeightedWindow]]:
        """What each pair's cosine would lose without each block; arguments as in :meth:`ReRanker.score_pairs`."""
        return occlusion_evidence(self, queries, documents, pairs)

    def parts(self, texts: Sequence[str], side: str = "documents") -> list[Parts]:
        """The vectors of texts, of their sections, each read alone, and of their blocks by the sentence encoder."""
        from pyterrier_longdoc.explain.parts import parts_alone

        tokens = self.tokenize(texts) if side == "queries" else self._read(texts)
        windows = self.model.blocks(tokens)
        with inference(self.devices[0], self.dtype):
            vectors = self.model.encode_sentences(self.model.config.template.windows(tokens, windows), self.budget())
        return parts_alone(self, texts, side, (windows, vectors.cpu().numpy()))


def _config_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Takes those out of a user's options that belong into the model's config."""
    names = {field.name for field in fields(SMITHConfig)} - {"encoder", "template", "sentences", "masked_heads"}
    return {name: options.pop(name) for name in sorted(names & options.keys())}


def _bert(
    tokenizer: PreTrainedTokenizerBase,
    block_length: int = SMITHConfig.block_length,
    dropout: float = SMITHConfig.dropout,
    **others: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """What the settings of a BERT over blocks hold beside its sizes."""
    return {
        "model_type": "bert", "vocab_size": 1 + max(tokenizer.get_vocab().values()),
        "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
        "max_position_embeddings": block_length,
    }


def _tokenizer(given: str | PreTrainedTokenizerBase | None) -> PreTrainedTokenizerBase:
    if given is None or isinstance(given, str | Path):
        return load_tokenizer(encoder_path(given or DEFAULT_ENCODER))
    return given


def _pretrained(name: str) -> tuple[PreTrainedModel, nn.Linear | None, PreTrainedTokenizerBase]:
    """An encoder without its pooler, that pooler if it has a trained one like BERT's, and its tokenizer."""
    try:
        module, tokenizer = load_encoder(name, "pooled")
    except ValueError:  # its files hold no pooler, or it is no encoder, which the next line says
        module, tokenizer = load_encoder(name)
    pooler = getattr(getattr(module, "pooler", None), "dense", None)
    if hasattr(module, "pooler"):
        module.pooler = None
    return module, pooler, tokenizer
