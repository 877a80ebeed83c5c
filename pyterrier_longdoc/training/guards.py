"""What has to hold while a training runs, and is put right again afterwards, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from pyterrier_longdoc.document_cache import DocumentCache
from pyterrier_longdoc.pooling import is_out_of_memory
from pyterrier_longdoc.training.processes import AccelerateProcesses, OneProcess
from pyterrier_longdoc.training.settings import Settings

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker


@contextmanager
def weights_change(
    ranker: ReRanker, processes: OneProcess | AccelerateProcesses, settings: Settings
) -> Iterator[None]:
    """The ranker while its weights change, and put right again afterwards, whatever happens."""
    cache, frozen = getattr(ranker, "document_cache", None), _frozen_parameters(ranker, settings)
    devices = ranker.devices
    if cache is not None:
        ranker.document_cache = None  # vectors of weights that are gone a step later are not worth keeping
    if frozen and processes.count == 1 and hasattr(ranker, "document_cache"):
        ranker.document_cache = DocumentCache()  # these stay, so each document is encoded once for the whole training
    if processes.count > 1:
        ranker.devices = [str(processes.device)]
    try:
        for parameter in frozen:
            parameter.requires_grad_(False)
        with fixed_order_of_sums(processes.device):
            yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
        ranker.model.eval()
        ranker.weights_changed()
        ranker.devices = devices
        if hasattr(ranker, "document_cache"):
            ranker.document_cache = cache


def _frozen_parameters(ranker: ReRanker, settings: Settings) -> list[torch.nn.Parameter]:
    if settings.representation_lr > 0 or not hasattr(ranker.model, "representation_parameters"):
        return []
    return [parameter for parameter in ranker.model.representation_parameters() if parameter.requires_grad]


@contextmanager
def fixed_order_of_sums(device: torch.device) -> Iterator[None]:
    """On a CPU, gradients of shared rows are otherwise added up in whatever order the threads come."""
    before, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn)
        torch.utils.deterministic.fill_uninitialized_memory = fill


@contextmanager
def fixed_random_numbers(device: torch.device, *key: int) -> Iterator[None]:
    """Dropout from a seed of its own; the generators of the user are left as they were."""
    own = {} if device.type == "cpu" else {"device_type": device.type}
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device.index or 0], **own):
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        yield


@contextmanager
def out_of_memory_hint(step: int) -> Iterator[None]:
    """Says what to do when the memory is too small for a step."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryError(
            f"out of memory in step {step}: raise accumulate (the result stays the same), or lower batch_size, "
            "negatives or train_doc_tokens"
        ) from error
