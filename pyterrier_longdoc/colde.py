"""CoLDE as a transformer: long documents matched as wholes, and explained by their sections and chunks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.dual_encoder import DualEncoder
from pyterrier_longdoc.explain.evidence import occlusion_evidence
from pyterrier_longdoc.explain.parts import Parts
from pyterrier_longdoc.models.colde import CoLDEModel, Levels
from pyterrier_longdoc.models.colde_settings import CoLDEConfig
from pyterrier_longdoc.models.encoder import encoder_settings, load_encoder
from pyterrier_longdoc.text.headings import heading_characters
from pyterrier_longdoc.text.sections import Sectioned, shuffle_sections
from pyterrier_longdoc.text.sentences import Structured, splitter_of, tokenize_sentences
from pyterrier_longdoc.text.template import Template
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER

if TYPE_CHECKING:
    import pandas as pd

    from pyterrier_longdoc.explain import WeightedWindow


class CoLDE(DualEncoder):
    """CoLDE: contrastive, sections and chunks of long documents compared at three levels (Jha et al., TKDD 2023).

    Queries are encoded as documents are, and may be documents. Texts of any length are read to their end, unless
    ``max_tokens`` says otherwise for both, or ``max_doc_tokens`` for documents. Before it is trained only its encoder
    knows anything: the heads above it are random.

    Args:
        encoder: Directory or hub name of a Hugging Face encoder; MiniLM, which needs no network, by default. For
            sentence encoders like MiniLM set ``pooling="mean"``, as they were trained.
        sections: Sections of a document, 1 to 5: at its headings, else between paragraphs or sentences. Short texts
            have fewer.
        seed: Seed of all random weights.
        **settings: Other fields of :class:`~pyterrier_longdoc.models.colde_settings.CoLDEConfig`, such as
            ``augmentation=False`` and ``lstm=False`` for the ablations of the paper (CoLDE-CL is the former, trained
            with ``loss="cosine"``), and options of :class:`~pyterrier_longdoc.reranker.ReRanker`.

    Raises:
        ValueError: If there is no such encoder, or a setting is out of range.
        TypeError: If there is no such setting.

    Example::

        colde = CoLDE("google-bert/bert-base-uncased")
        colde.fit_pairs(train_pairs, validation_pairs, batch_size=100, output_dir="colde")
        colde.explain(paper, another_paper)
    """

    model_class = CoLDEModel
    model: CoLDEModel
    #: Rates of the paper (section 4.1.2), for ranking by judged results; :meth:`fit_pairs` is the paper's training.
    fit_defaults: ClassVar[dict[str, Any]] = {
        "loss": "listwise", "lr": 5e-5, "representation_lr": 5e-5, "weight_decay": 0.01, "batch_size": 16,
    }
    window_kind: ClassVar[str] = "chunk"
    weight_meaning: ClassVar[str] = "what the cosine would lose without the chunk"
    _shuffle: int | None = None

    def __init__(
        self, encoder: str = DEFAULT_ENCODER, *, sections: int = 2, seed: int = 0, **settings: Any  # noqa: ANN401
    ) -> None:
        names = {field.name for field in fields(CoLDEConfig)} - {"encoder", "template"}
        chosen = {name: settings.pop(name) for name in sorted(names & settings.keys())}
        kind = "pooled" if chosen.get("pooling", CoLDEConfig.pooling) == "pooler" else "base"
        module, tokenizer = load_encoder(encoder, kind)
        config = CoLDEConfig(encoder_settings(module), Template.of(tokenizer), sections=sections, **chosen)
        splitter_of(config.sentences)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = CoLDEModel(config, module)
        super().__init__(model, tokenizer, model_name=f"{encoder}#{fingerprint(model)}", **settings)

    def tokenize(self, texts: Sequence[str]) -> Sectioned:
        """Token ids of texts up to ``max_tokens``, with their sections; a warning counts what is left out."""
        return self._in_sections(self._structured(texts))

    def _read(self, documents: Sequence[str]) -> Sectioned:
        tokens = self._cut(self._structured(documents), self.max_doc_tokens, "max_doc_tokens", "documents")
        return self._in_sections(tokens)

    def _structured(self, texts: Sequence[str]) -> Structured:
        config = self.model.config
        splitter = splitter_of(config.sentences)[1]
        tokens = tokenize_sentences(self.tokenizer, texts, splitter, heading_characters)
        return self._cut(tokens, config.max_tokens, "max_tokens", "texts")

    def _in_sections(self, tokens: Structured) -> Sectioned:
        """What is read of texts, cut into sections: those of a long text's head are not those of the whole."""
        sections = Sectioned.of(tokens, self.model.config.section_count)
        return sections if self._shuffle is None else shuffle_sections(sections, self._shuffle)

    def with_sections(self, sections: int) -> CoLDE:
        """A ranker over the same weights that cuts documents into another number of sections (section 4.5.4).

        Raises:
            ValueError: If it is not from 1 to 5.
        """
        model = copy.copy(self.model)  # shares the weights
        model.config = replace(self.model.config, sections=sections)
        changed = copy.copy(self)
        changed.model = model
        changed.model_name = f"{self.model_name}/{sections}"
        return changed

    def with_shuffled_sections(self, seed: int = 0) -> CoLDE:
        """A ranker over the same weights that reads the sections of documents in another order (section 4.4.3).

        Sections keep their numbers, so that their embeddings and what they look at stay what they were.

        Args:
            seed: With a document's tokens it decides on the order.
        """
        changed = copy.copy(self)
        changed._shuffle = seed
        changed.model_name = f"{self.model_name}/shuffled-{seed}"
        return changed

    def weights_id(self) -> str:
        """As in :class:`~pyterrier_longdoc.reranker.ReRanker`; another one where sections are read in another order."""
        own = super().weights_id()
        return own if self._shuffle is None else f"{own}-shuffled-{self._shuffle}"

    def fit_pairs(
        self, pairs: pd.DataFrame, validation: pd.DataFrame | None = None, *, loss: str = "contrastive", **settings: Any  # noqa: ANN401
    ) -> CoLDE:
        """Trains on pairs or groups of matching documents.

        Args:
            pairs: See :func:`fit_contrastive`.
            validation: Pairs to validate on.
            loss: ``"contrastive"`` (the paper) or ``"cosine"`` (its ablation CoLDE-CL, which has
                ``augmentation=False`` too), see :func:`fit_contrastive`;
                ``"binary"`` or ``"in_batch"``, see :func:`pyterrier_longdoc.pairs.fit_pairs`.
            **settings: As in those functions.

        Returns:
            The ranker itself.
        """
        if loss in ("binary", "in_batch"):
            return super().fit_pairs(pairs, validation, loss=loss, **settings)
        return fit_contrastive(self, pairs, validation, loss=loss, **settings)

    def evidence(self, queries: list[str], documents: list[str], pairs: np.ndarray) -> list[list[WeightedWindow]]:
        """What each pair's cosine would lose without each chunk; arguments as in :meth:`ReRanker.score_pairs`."""
        return occlusion_evidence(self, queries, documents, pairs)

    def parts(self, texts: Sequence[str], side: str = "documents") -> list[Parts]:
        """The vectors of texts, of their sections and of their chunks, and what these look at."""
        tokens = self.tokenize(texts) if side == "queries" else self._read(texts)
        with inference(self.devices[0], self.dtype):
            levels = self.model.levels(tokens, self.budget())
        return [
            Parts(
                document=each.document.cpu().numpy(),
                sections=each.sections.cpu().numpy(),
                chunks=each.chunks.float().cpu().numpy(),
                section_positions=[_positions(each, each.section_of == row) for row in range(len(each.numbers))],
                chunk_positions=[row[row >= 0] for row in each.windows.positions],
                section_of=each.section_of,
                attention=None if each.attention is None else each.attention.cpu().numpy(),
                kind=self.window_kind,
            )
            for each in levels
        ]


def _positions(levels: Levels, chunks: np.ndarray) -> np.ndarray:
    """The positions of the tokens of some chunks."""
    positions = levels.windows.positions[chunks].ravel()
    return positions[positions >= 0]


def fit_contrastive(
    ranker: DualEncoder,
    documents: pd.DataFrame,
    validation: pd.DataFrame | None = None,
    *,
    output_dir: str | Path | None = None,
    save_every: int | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
    **settings: Any,  # noqa: ANN401
) -> DualEncoder:
    """Trains a dual encoder to bring matching documents together and push others apart.

    ``history`` has two columns of its own: ``match_similarity`` and ``other_similarity``, the mean cosines of views
    that match and of those that do not. In several processes each contrasts the documents of its own share.

    Args:
        ranker: The encoder; it is changed.
        documents: Pairs as :func:`~pyterrier_longdoc.pairs.as_pairs` takes them, where those with a label of 0 or less
            surely do not match; or documents with the encoder's text field and ``group``: those of a group match.
        validation: Pairs to validate on: the weights that did best on them are kept.
        output_dir: As in :func:`pyterrier_longdoc.training.fit`, as are ``save_every``, ``resume`` and ``verbose``.
        save_every: See ``output_dir``.
        resume: See ``output_dir``.
        verbose: See ``output_dir``.
        **settings: See :class:`~pyterrier_longdoc.training.contrastive.ContrastiveSettings`; what is left out is as in
            the paper.

    Returns:
        The encoder.

    Raises:
        ValueError: If nothing matches anything, or a frame, a setting or the checkpoint is unfit.
        TypeError: If there is no such setting.
    """
    from pyterrier_longdoc.pairs import PairValidation, as_pairs
    from pyterrier_longdoc.training.contrastive import CONTRASTIVE, Contrastive, ContrastiveSettings
    from pyterrier_longdoc.training.fitting import train

    chosen = ContrastiveSettings.of(**{**CONTRASTIVE, **settings})
    grouped = "group" in documents and "label" not in documents
    task = Contrastive.of(ranker, documents if grouped else as_pairs(documents), chosen)
    measured = None if validation is None else PairValidation(ranker, validation, chosen.measures)
    return train(
        ranker, task, measured, output_dir=output_dir, save_every=save_every, resume=resume, verbose=verbose
    )
