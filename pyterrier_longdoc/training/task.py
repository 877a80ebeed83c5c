"""What the trainer trains on: ranking a first stage's results, or anything else that has examples and a loss.

Everything about an example follows from (seed, epoch, number of the example), never from what was drawn before it, so
that a training that was cut off goes on with exactly the examples that it would have had.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch import Tensor, nn

from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.training.settings import Settings

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker

#: First numbers of the seeds of different uses, so that no two share one.
ORDER, NEGATIVES, STEP = 1, 2, 3


class Task(Protocol):
    """Examples and their loss; :class:`~pyterrier_longdoc.training.examples.Examples` is the usual one.

    Attributes:
        settings: How it is trained.
    """

    settings: Settings

    def __len__(self) -> int:
        """How many examples an epoch has."""

    def order(self, epoch: int) -> np.ndarray:
        """The examples in the order of an epoch, int64 ``[e]``."""

    def fingerprint(self) -> str:
        """A hash of everything that examples are drawn from."""

    def module(self, model: nn.Module) -> nn.Module:
        """What :meth:`loss` calls: the model, or a module around it.

        Only what its ``forward`` computes has its gradients averaged over several processes.
        """

    def loss(
        self, ranker: ReRanker, module: nn.Module, epoch: int, examples: np.ndarray, budget: Budget
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of some examples, a scalar, and further means over them for the history.

        Args:
            ranker: The ranker that is trained.
            module: What :meth:`module` returned, as it has to be called.
            epoch: The epoch.
            examples: Numbers of the examples, ``[b]``.
            budget: Tokens of a forward pass.
        """


def shuffled(task: Task, epoch: int) -> np.ndarray:
    """The examples of a task in the random order of an epoch, int64 ``[e]``."""
    return np.random.default_rng([task.settings.seed, ORDER, epoch]).permutation(len(task))


def hash_of(*arrays: np.ndarray | None) -> str:
    """A short hash of arrays, of their types and shapes too, for the :meth:`~Task.fingerprint` of a task."""
    digest = blake2b(digest_size=8)
    for array in arrays:
        digest.update(b"None" if array is None else f"{array.dtype}{array.shape}".encode())
        digest.update(b"" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()
