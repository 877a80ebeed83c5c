"""IDCM as a transformer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from pyterrier_longdoc.checkpoint import local_directory
from pyterrier_longdoc.models.encoder import encoder_settings, load_encoder
from pyterrier_longdoc.models.idcm import STAGES, IDCMModel
from pyterrier_longdoc.passages import PassageReRanker
from pyterrier_longdoc.text.template import Template

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

#: Options of training that are no settings.
_CHECKPOINTS = ("output_dir", "save_every", "resume", "verbose")


class IDCM(PassageReRanker):
    """IDCM: a cheap selector finds the passages that an encoder is worth (Hofstätter et al., SIGIR 2021).

    Scores all passages of a document with the selector and only ``max_passages`` of them with the encoder; the output
    says in ``passages_read`` which share that was, and ``explain`` which ones they were. Required input columns:
    ``qid``, ``query``, ``docno`` and ``text_field``. Arguments as in :class:`~pyterrier_longdoc.passages.MaxP`;
    settings in :class:`~pyterrier_longdoc.models.idcm.IDCMConfig`.

    Example::

        idcm = IDCM()
        idcm.fit(passages, passage_qrels, stage="passages")
        idcm.fit(train, qrels, valid, valid_qrels, stage="documents")
        idcm.fit(train, qrels, valid, valid_qrels, stage="selector")
    """

    model_class = IDCMModel
    fixed: ClassVar[dict[str, Any]] = {"unit": "token", "published": False}
    weight_meaning: ClassVar[str] = "what a passage that was read adds to the score; 0: read, but not among the best"
    #: Settings of :meth:`fit` in each stage.
    stage_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "passages": {"loss": "ranknet", "lr": 1e-4, "representation_lr": 7e-6, "batch_size": 32},
        "documents": {"loss": "ranknet", "lr": 1e-4, "representation_lr": 7e-6, "batch_size": 32},
        "selector": {"lr": 1e-4, "batch_size": 32},
    }

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
        *,
        stage: str = "documents",
        **settings: Any,  # noqa: ANN401
    ) -> IDCM:
        """Trains one stage; three calls, in this order, train the whole model.

        Args:
            topics_or_res_tr: Results with texts: of passages in the stage ``"passages"``, else of documents.
            qrels_tr: Their judgements; the stage ``"selector"`` learns from the encoder and needs none.
            topics_or_res_va: Results to validate on.
            qrels_va: Their judgements.
            stage: ``"passages"``: the encoder, on texts that are read whole. ``"documents"``: the encoder and the
                weights of the best passages, with all passages read. ``"selector"``: the selector, with the rest as it
                is; see :func:`~pyterrier_longdoc.training.selection.fit_selector`.
            **settings: As in :func:`pyterrier_longdoc.training.fit`.

        Returns:
            The ranker.

        Raises:
            ValueError: If there is no such stage, or a frame or setting is unfit.
        """
        if stage not in STAGES:
            raise ValueError(f"stage must be one of {', '.join(map(repr, STAGES))}, got {stage!r}")
        frames = topics_or_res_tr, qrels_tr, topics_or_res_va, qrels_va
        settings = {**self.stage_defaults[stage], **settings}
        self.model.stage = stage
        try:
            if stage != "selector":
                return super().fit(*frames, **settings)
            from pyterrier_longdoc.training.selection import fit_selector

            options = {name: settings.pop(name) for name in _CHECKPOINTS if name in settings}
            return fit_selector(self, *frames, settings=settings, **options)
        finally:
            self.model.stage = None
            self.model.eval()

    @classmethod
    def from_published(cls, name_or_path: str, **options: Any) -> IDCM:  # noqa: ANN401
        """Loads a checkpoint of the authors, such as ``sebastian-hofstaetter/idcm-distilbert-msmarco_doc``.

        Its sequences are those of the published code, for a pair scored alone: in a batch that code puts padding
        between query and passage, so that scores depend on the longest query.

        Args:
            name_or_path: A directory or hub name with ``config.json`` (``bert_model``, ``sample_n``, ``chunk_size``,
                ``overlap``) and weights; ``bert_model`` is loaded too, for its settings and tokenizer.
            **options: Options of :class:`~pyterrier_longdoc.reranker.ReRanker`.

        Raises:
            ValueError: If it is no such checkpoint.
        """
        directory = local_directory(str(name_or_path))
        try:
            config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
            base = config["bert_model"]
            settings = {
                "passage_tokens": config["chunk_size"], "overlap": config["overlap"],
                "max_passages": config["sample_n"],
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{directory} is no published checkpoint of IDCM: config.json lacks {error}") from error
        encoder, tokenizer = load_encoder(base)
        model = IDCMModel.from_matchmaker(
            _weights(directory), encoder_settings(encoder), Template.of(tokenizer), **settings
        )
        return cls.from_model(model, tokenizer, **{"model_name": str(name_or_path), **options})


def _weights(directory: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint; of the older format only tensors are read, no objects."""
    from safetensors.torch import load_file

    for name, read in (
        ("model.safetensors", load_file),
        ("pytorch_model.bin", lambda path: torch.load(path, map_location="cpu", weights_only=True)),
    ):
        if (directory / name).is_file():
            return read(directory / name)
    raise ValueError(f"{directory} has neither model.safetensors nor pytorch_model.bin")
