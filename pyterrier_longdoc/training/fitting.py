"""From frames to a trained ranker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.training.examples import collect_examples
from pyterrier_longdoc.training.guards import weights_change
from pyterrier_longdoc.training.processes import AccelerateProcesses, OneProcess, current_processes
from pyterrier_longdoc.training.settings import Settings
from pyterrier_longdoc.training.state import Folder
from pyterrier_longdoc.training.task import Task
from pyterrier_longdoc.training.trainer import Trainer
from pyterrier_longdoc.training.validation import Measured, Validation

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker


def fit(
    ranker: ReRanker,
    res_tr: pd.DataFrame,
    qrels_tr: pd.DataFrame,
    res_va: pd.DataFrame | None = None,
    qrels_va: pd.DataFrame | None = None,
    *,
    positives: str | pt.Transformer = "retrieved",
    output_dir: str | Path | None = None,
    save_every: int | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
    **settings: Any,  # noqa: ANN401
) -> ReRanker:
    """Trains a ranker on the results of a first stage.

    With validation data the ranker ends with the weights that did best on it, else with the last ones. Afterwards
    ``ranker.history`` is a frame with one row for each validation or epoch: ``epoch``, ``step``, ``examples`` (seen so
    far), ``loss`` (mean since the row before), the measures, and ``seconds`` (since the row before).

    Started in several processes (``accelerate launch``, ``notebook_launcher``; on CPUs ``torchrun``), it trains in all
    of them together, to the result of one; the first process writes and shows progress.

    Args:
        ranker: The ranker; it is changed.
        res_tr: Results with ``qid``, ``query``, ``docno`` and the ranker's text field.
        qrels_tr: Judgements with ``qid``, ``docno`` and ``label``.
        res_va: Results to validate on.
        qrels_va: Their judgements.
        positives: ``"retrieved"``: relevant documents among the results. Or a transformer that adds the texts of
            documents, such as ``dataset.text_loader()``: then all relevant documents of the queries are used.
        output_dir: Directory of the checkpoints ``last`` and ``best``; nothing is written if ``None``.
        save_every: Steps from one ``last`` to the next; it is also written after each validation and epoch.
        resume: An earlier ``output_dir``, to go on there; data and settings must be those of then. A finished
            training gives back its best weights at once.
        verbose: Whether to show progress.
        **settings: See :class:`~pyterrier_longdoc.training.settings.Settings`; what is left out is as
            ``ranker.fit_defaults`` says, the settings of the ranker's paper.

    Returns:
        The ranker.

    Raises:
        ValueError: If there is nothing to learn from, or a frame, a setting or the checkpoint is unfit.
        TypeError: If there is no such setting.
        FloatingPointError: If the loss or the gradient is not finite.
        MemoryError: If the memory of the device is too small.
    """
    if (res_va is None) != (qrels_va is None):
        raise ValueError("validation needs both results and qrels: give both or neither")
    chosen = Settings.of(**{**ranker.fit_defaults, **settings})
    processes = processes_for(ranker)
    examples = collect_examples(ranker, res_tr, qrels_tr, chosen, positives)
    validation = None if res_va is None else Validation(ranker, res_va, qrels_va, chosen, processes)
    checkpoints = {"output_dir": output_dir, "save_every": save_every, "resume": resume}
    return train(ranker, examples, validation, processes, verbose=verbose, **checkpoints)


def train(
    ranker: ReRanker,
    task: Task,
    validation: Measured | None = None,
    processes: OneProcess | AccelerateProcesses | None = None,
    *,
    output_dir: str | Path | None = None,
    save_every: int | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
) -> ReRanker:
    """Trains a ranker on any task; what is not listed is as in :func:`fit`.

    Args:
        ranker: The ranker; it is changed.
        task: Its examples, their loss and the settings.
        validation: What says which weights are best; the last ones if ``None``.
        processes: Those that :func:`processes_for` gave, where they are needed before.
        output_dir: As in :func:`fit`.
        save_every: As in :func:`fit`.
        resume: As in :func:`fit`.
        verbose: As in :func:`fit`.

    Returns:
        The ranker.
    """
    if save_every is not None:
        check_whole("save_every", save_every)
    if None not in (resume, output_dir) and Path(resume).resolve() != Path(output_dir).resolve():
        raise ValueError(f"resume goes on in its own directory: leave out output_dir, or make it {str(resume)!r} too")
    processes = processes or processes_for(ranker)
    path, folder = resume or output_dir, None
    if path is not None:
        data = {"training": task.fingerprint(), "validation": validation and validation.fingerprint()}
        data["model"] = json.dumps([type(ranker).__name__, ranker.model.config.to_dict(), ranker.max_doc_tokens])
        folder = Folder(path, task.settings.to_dict(), data)
    trainer = Trainer(ranker, task, validation, processes, folder, save_every)
    with weights_change(ranker, processes, task.settings):
        trainer.begin(resume=resume is not None)
        try:
            trainer.run(verbose)
        finally:
            ranker.history = pd.DataFrame(trainer.state.history)
    return ranker


def processes_for(ranker: ReRanker) -> OneProcess | AccelerateProcesses:
    """The processes that this one was started with, to train a ranker where it is."""
    return current_processes(str(next(ranker.model.parameters()).device))
