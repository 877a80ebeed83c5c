"""The training loop.

Everything that a step does follows from the weights, the optimizer's moments and (seed, step): its examples, their
negatives, its dropout and its learning rate. So a training that was killed goes on from its last checkpoint as if
nothing had happened, bit for bit on a CPU.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
import pyterrier as pt
import torch
from torch import Tensor

from pyterrier_longdoc.checkpoint import fingerprint
from pyterrier_longdoc.training.guards import fixed_random_numbers, out_of_memory_hint
from pyterrier_longdoc.training.processes import AccelerateProcesses, OneProcess
from pyterrier_longdoc.training.settings import Settings
from pyterrier_longdoc.training.state import Folder, State
from pyterrier_longdoc.training.task import STEP, Task
from pyterrier_longdoc.training.validation import Measured

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker


#: Columns of the history that progress bars leave out.
_COUNTS = ("epoch", "step", "examples", "seconds")


class Trainer:
    """One training of one ranker; see :func:`pyterrier_longdoc.training.fit`.

    Args:
        ranker: The ranker.
        task: What it learns from, with the settings.
        validation: How it is measured, if at all.
        processes: The processes that train it.
        folder: Where checkpoints go, if anywhere.
        save_every: Steps from one checkpoint to the next.
    """

    def __init__(
        self,
        ranker: ReRanker,
        task: Task,
        validation: Measured | None,
        processes: OneProcess | AccelerateProcesses,
        folder: Folder | None,
        save_every: int | None,
    ) -> None:
        self.state = State()
        self._ranker, self._model = ranker, ranker.model.to(processes.device)
        self._task, self._settings = task, task.settings
        self._validation, self._processes = validation, processes
        self._folder, self._save_every = folder, save_every
        self._steps_per_epoch = -(-len(task) // self._settings.batch_size)
        self._steps = self._steps_per_epoch * self._settings.epochs
        if self._settings.max_steps is not None:
            self._steps = min(self._steps, self._settings.max_steps)
        self._optimizer = _optimizer(self._model, self._settings)
        self._budget = ranker.budget()
        self._best: dict[str, Tensor] | None = None
        self._since = time.perf_counter()

    def begin(self, *, resume: bool) -> None:
        """Goes back to the last checkpoint, or writes the first one."""
        if self._folder is None:
            return
        main = self._processes.rank == 0
        if resume:
            if main:
                self._folder.clean()
            self._processes.wait()
            self.state = self._folder.read_state()
            if self.state.best_id is not None:
                self._load_best()
            if not self.state.finished:
                self._folder.load_last(self._model, self._optimizer)
        else:
            self._folder.claim()
            self._processes.wait()
            if main:
                self._folder.write_last(self._ranker, self._optimizer, self.state)
        self._processes.wait()

    def run(self, verbose: bool) -> None:
        """Trains to the end and leaves the best weights in the model."""
        main, state = self._processes.rank == 0, self.state
        trained = self._processes.prepare(self._task.module(self._model))
        title = f"{type(self._ranker).__name__} training"
        with pt.tqdm(
            total=self._steps, initial=state.step, desc=title, unit="step", disable=not (verbose and main)
        ) as bar:
            while not state.finished:
                self._step(trained)
                row = state.step == self._steps or state.step % self._interval == 0
                improved = row and self._record()
                state.finished = state.step == self._steps or self._is_patience_over
                if state.finished and self._validation is None:
                    state.best_id, improved = fingerprint(self._model), True
                self._write(row, improved)
                bar.update()
                bar.set_postfix(self._progress())
        if self._best is not None:
            self._model.load_state_dict(self._best)
        self._processes.wait()

    # One step ---------------------------------------------------------------------------------------------------------

    def _step(self, trained: torch.nn.Module) -> None:
        state, settings = self.state, self._settings
        epoch, place = divmod(state.step, self._steps_per_epoch)
        batch = self._task.order(epoch)[place * settings.batch_size : (place + 1) * settings.batch_size]
        factor = settings.rate_factor(state.step, self._steps)
        for group in self._optimizer.param_groups:
            group["lr"] = group["rate"] * factor
        trained.train()
        with out_of_memory_hint(state.step + 1):
            means = self._processes.sums(self._gradients(trained, epoch, batch))
        self._check("loss", means["loss"])
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), settings.clip_norm or math.inf)
        self._check("gradient", norm.item())
        self._optimizer.step()
        self._optimizer.zero_grad()
        state.step += 1
        for name, mean in means.items():
            state.sums[name] = state.sums.get(name, 0.0) + mean * len(batch)
        state.examples += len(batch)

    def _gradients(self, trained: torch.nn.Module, epoch: int, batch: np.ndarray) -> dict[str, Tensor]:
        """Adds up the gradients of this process's share; returns its share of the mean loss and of other means."""
        count, rank = self._processes.count, self._processes.rank
        parts = list(enumerate(np.array_split(batch, self._settings.accumulate * count)))[rank::count]
        if count == 1:
            parts = [(number, part) for number, part in parts if len(part)]
        totals: dict[str, Tensor] = {}
        for number, part in parts:
            with nullcontext() if number == parts[-1][0] else self._processes.unsynced(trained):
                # Processes wait for each other in every part: one without examples computes one that weighs nothing
                weight = len(part) / len(batch)
                loss, more = self._loss(trained, epoch, number, part if len(part) else batch[:1])
                (loss * weight * count).backward()  # gradients are averaged over the processes
            for name, mean in {"loss": loss, **more}.items():
                totals[name] = totals.get(name, 0.0) + mean.detach() * weight
        return totals

    def _loss(
        self, trained: torch.nn.Module, epoch: int, number: int, part: np.ndarray
    ) -> tuple[Tensor, dict[str, Tensor]]:
        device, reduced = self._processes.device, self._settings.precision == "bfloat16"
        seeded = fixed_random_numbers(device, self._settings.seed, STEP, self.state.step, number)
        with seeded, torch.autocast(device.type, dtype=torch.bfloat16, enabled=reduced):
            return self._task.loss(self._ranker, trained, epoch, part, self._budget)

    def _check(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            reduced = "" if self._settings.precision == "float32" else ", or precision='float32'"
            raise FloatingPointError(
                f"{self._ranker}: the {what} is {value} in step {self.state.step + 1}; use a lower lr or "
                f"representation_lr, clip_norm{reduced}"
            )

    # Between steps ----------------------------------------------------------------------------------------------------

    @property
    def _interval(self) -> int:
        return self._settings.validate_every or self._steps_per_epoch

    @property
    def _is_patience_over(self) -> bool:
        return self._settings.patience is not None and self.state.waited >= self._settings.patience

    def _record(self) -> bool:
        """Adds a row to the history; returns whether the weights are the best so far."""
        state = self.state
        epochs, place = divmod(state.step, self._steps_per_epoch)
        values = {} if self._validation is None else self._validate()
        now = time.perf_counter()
        state.history.append(
            {
                "epoch": epochs + (place > 0),
                "step": state.step,
                "examples": epochs * len(self._task) + place * self._settings.batch_size,
                **{name: total / state.examples for name, total in state.sums.items()},
                **values,
                "seconds": now - self._since,
            }
        )
        self._since, state.sums, state.examples = now, {}, 0
        score = next(iter(values.values()), None)
        if score is None:
            return False
        if state.best_score is not None and score <= state.best_score:
            state.waited += 1
            return False
        state.best_score, state.best_id, state.waited = score, fingerprint(self._model), 0
        self._best = _copy(self._model)
        return True

    def _validate(self) -> dict[str, float]:
        self._model.eval()
        self._ranker.weights_changed(rename=False)
        return self._validation()

    def _write(self, row: bool, improved: bool) -> None:
        due = self._save_every is not None and self.state.step % self._save_every == 0
        if self._folder is None or self._processes.rank != 0:
            return
        if row or due or self.state.finished:
            self._folder.write_last(self._ranker, self._optimizer, self.state)
        if improved:
            self._folder.write_best(self._ranker)

    def _load_best(self) -> None:
        written = self._folder.load_best(self._model, self.state.best_id)
        self._best = _copy(self._model)
        self._processes.wait()
        if not written and self._processes.rank == 0:
            self._folder.write_best(self._ranker)

    def _progress(self) -> dict[str, str]:
        state = self.state
        row = state.history[-1] if state.history else {}
        now = {name: total / state.examples for name, total in state.sums.items()}
        shown = {name: value for name, value in {**row, **now}.items() if name not in _COUNTS}
        return {name: f"{value:.4f}" for name, value in shown.items()}


def _optimizer(model: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW with a rate of their own for vectors and contextualiser."""
    lower = {id(each) for each in getattr(model, "representation_parameters", list)()}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if settings.representation_lr == 0:
        trained = [parameter for parameter in trained if id(parameter) not in lower]
    if not trained:
        raise ValueError("the model has no parameter that is trained")
    groups = [
        {"params": [each for each in trained if (id(each) in lower) == chosen], "lr": rate, "rate": rate}
        for chosen, rate in ((False, settings.lr), (True, settings.representation_lr))
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        weight_decay=settings.weight_decay,
        fused=trained[0].device.type in ("cpu", "cuda"),  # ten times as fast for a table of vectors
    )


def _copy(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}
