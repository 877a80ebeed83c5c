"""One process, or several that train one model together.

Each process computes its share of every step's examples; gradients are averaged, so that all processes hold the same
weights at all times. ``accelerate`` is the engine for several processes, on CPUs or GPUs, and is needed only there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn


class OneProcess:
    """Training in this process alone.

    Args:
        device: Where the model is trained.
    """

    rank, count = 0, 1

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def prepare(self, model: nn.Module) -> Callable[..., Tensor]:
        """The model as it has to be called."""
        return model

    def unsynced(self, model: Callable[..., Tensor]) -> AbstractContextManager:
        """Within it gradients stay in their process, because more are to be added."""
        return nullcontext()

    def sums(self, values: dict[str, Tensor]) -> dict[str, float]:
        """Each value summed over all processes."""
        return {name: value.item() for name, value in values.items()}

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """The values of all processes."""
        return [value]

    def wait(self) -> None:
        """Waits for all processes."""


class AccelerateProcesses:
    """The same for the processes of ``accelerate launch``, ``notebook_launcher`` or ``torchrun``.

    Args:
        cpu: Whether to train on CPUs, even where there are GPUs.

    Raises:
        ValueError: If the launcher asks for what is not supported here.
    """

    def __init__(self, *, cpu: bool) -> None:
        from accelerate import Accelerator, DistributedDataParallelKwargs

        # A batch without, say, a long document leaves parameters without a gradient
        handlers = [DistributedDataParallelKwargs(find_unused_parameters=True)]
        self._accelerator = Accelerator(cpu=cpu, kwargs_handlers=handlers)
        if self._accelerator.mixed_precision != "no":
            raise ValueError("set the precision with fit(precision=...), and mixed_precision='no' in accelerate")
        kind = self._accelerator.distributed_type.value
        if kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "TP"):
            raise ValueError(f"accelerate is set up for {kind}; only data-parallel training (DDP) is supported")
        self.device = self._accelerator.device
        self.rank, self.count = self._accelerator.process_index, self._accelerator.num_processes

    def prepare(self, model: nn.Module) -> Callable[..., Tensor]:
        """The model as it has to be called, so that gradients are averaged over the processes."""
        return self._accelerator.prepare_model(model)

    def unsynced(self, model: Callable[..., Tensor]) -> AbstractContextManager:
        """Within it gradients stay in their process, because more are to be added."""
        return self._accelerator.no_sync(model)

    def sums(self, values: dict[str, Tensor]) -> dict[str, float]:
        """Each value summed over all processes."""
        return {name: self._accelerator.reduce(value, reduction="sum").item() for name, value in values.items()}

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """The values of all processes, in their order."""
        from accelerate.utils import gather_object

        return gather_object([value])

    def wait(self) -> None:
        """Waits for all processes."""
        self._accelerator.wait_for_everyone()


def current_processes(device: str) -> OneProcess | AccelerateProcesses:
    """The processes that this one was started with.

    Args:
        device: Where a single process trains. Several train on CPUs if it is one, else each on its own GPU.

    Raises:
        ImportError: If there are several, but no accelerate.
        ValueError: If accelerate is set up for something else.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started == 1 and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return OneProcess(device)
    try:
        processes = AccelerateProcesses(cpu=device == "cpu")
    except ImportError as error:
        raise ImportError(
            f"training in {started} processes needs accelerate: pip install accelerate"
        ) from error
    if started not in (1, processes.count):
        raise ValueError(f"{started} processes were started, but accelerate is set up for {processes.count}")
    return processes
