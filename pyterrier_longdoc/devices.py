"""Where the work runs, in which precision, and how several devices share it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    import numpy as np

    from pyterrier_longdoc.pooling import Pool

_DTYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_devices(device: str | torch.device | Sequence[str | torch.device] | None) -> list[str]:
    """Names of the devices to use, checked.

    Raises:
        ValueError: If a device does not exist here.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    names = [str(device)] if isinstance(device, str | torch.device) else [str(each) for each in device]
    if not names:
        raise ValueError("device is an empty list; name at least one, such as 'cpu'")
    for name in names:
        try:
            torch.empty(1, device=name)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return names


def resolve_dtype(dtype: str, device: str) -> torch.dtype | None:
    """The encoder's precision; ``None`` is float32.

    Raises:
        ValueError: If ``dtype`` is unknown.
    """
    name = str(dtype).removeprefix("torch.")
    if name == "auto":
        return torch.bfloat16 if _bfloat16_is_faster(device) else None
    if name not in _DTYPES:
        raise ValueError(f"dtype must be 'auto' or one of {list(_DTYPES)}, got {dtype!r}")
    return _DTYPES[name]


@contextmanager
def inference(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """No gradients, and the encoder in ``dtype``."""
    kind = torch.device(device).type
    with torch.inference_mode(), torch.autocast(kind, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        yield


def share_out(
    pool: Pool,
    compute: Callable[[nn.Module, np.ndarray], tuple[np.ndarray, np.ndarray]],
    model: nn.Module,
    devices: Sequence[str],
    dtype: torch.dtype | None,
    results: np.ndarray,
    bar: Any,  # noqa: ANN401
) -> None:
    """Computes the groups of a pool on one device or several, which take them from one queue.

    Args:
        pool: Groups of items.
        compute: From a model and the items of a group to rows of ``results`` and what belongs there.
        model: The model, on the first device; the others get copies.
        devices: Names of the devices.
        dtype: See :func:`inference`.
        results: Is filled.
        bar: A progress bar over items.
    """

    def work(device: str, model: nn.Module) -> None:
        with inference(device, dtype):
            for group, (rows, result) in pool.run(lambda group: compute(model, group)):
                results[rows] = result
                bar.update(len(group))

    models = [model, *(copy.deepcopy(model).to(device) for device in devices[1:])]
    with ThreadPoolExecutor(len(models)) as threads:
        try:
            running = [threads.submit(work, *each) for each in zip(devices, models, strict=True)]
            for done in as_completed(running):
                done.result()
        except BaseException:  # a failure, or Ctrl-C: nobody wants to wait for the rest of the pool
            pool.stop()
            raise


def _bfloat16_is_faster(device: str) -> bool:
    kind = torch.device(device).type
    if kind == "cpu":
        abilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        if not any("bf16" in name for name, has in abilities.items() if has is True):
            return False
    elif kind != "cuda" or not torch.cuda.is_bf16_supported():
        return False
    return _seconds(torch.bfloat16, device) < 0.8 * _seconds(torch.float32, device)


def _seconds(dtype: torch.dtype, device: str) -> float:
    """Best of five matrix products of an encoder's size."""
    left, right = (torch.ones(size, dtype=dtype, device=device) for size in ((2_000, 384), (384, 1_152)))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        (left @ right).sum().item()
        times.append(time.perf_counter() - start)
    return min(times)
