"""Reading only the promising passages of a document: a budget, and a cheap score that says where to spend it.

A selector looks at one query and one document, so that what is read, and so the score, depends on these two alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

#: Maps the token ids of a query ``[m]``, those of a document ``[n]``, and the positions of its passages
#: ``[passages, width]`` (-1: none) to a score of each passage; the highest are read.
Selector = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def term_overlap(query: np.ndarray, document: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Exact matches: Σ over distinct query terms of ln(1 + passages / df) · tf / (tf + 1).

    tf counts a term in the passage, df the passages of this document that hold it: the document is its own collection.

    Args:
        query: Token ids, ``[m]``.
        document: Token ids, ``[n]``.
        positions: Positions of each passage's tokens, ``[passages, width]``, -1 where there is none.

    Returns:
        float64 ``[passages]``.
    """
    matches = np.zeros((len(np.unique(query)), len(document) + 1), bool)  # the last column is that of position -1
    matches[:, :-1] = np.unique(query)[:, None] == document
    frequency = matches[:, positions].sum(axis=2)
    passages = np.maximum((frequency > 0).sum(axis=1, keepdims=True), 1)
    return (np.log1p(positions.shape[0] / passages) * frequency / (frequency + 1)).sum(axis=0)


def first(query: np.ndarray, document: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The earlier, the better; arguments as in :func:`term_overlap`."""
    return -np.arange(len(positions), dtype=np.float64)


#: Selectors by name. A function of your own joins by ``SELECTORS["name"] = function``, also before loading a ranker.
SELECTORS: dict[str, Selector] = {"overlap": term_overlap, "first": first}


def selector_of(name: str) -> Selector:
    """The selector of a name.

    Raises:
        ValueError: If there is none.
    """
    if name not in SELECTORS:
        raise ValueError(
            f"selector must be one of {', '.join(map(repr, SELECTORS))}, got {name!r}; a function of your own is made "
            "known by pyterrier_longdoc.models.pruning.SELECTORS[name] = function"
        )
    return SELECTORS[name]


def best(scores: np.ndarray, count: int) -> np.ndarray:
    """Numbers of the ``count`` highest scores, ascending; of equal ones the first.

    Raises:
        ValueError: If a score is no number.
    """
    if np.isnan(scores).any():
        raise ValueError("a selector gave a passage no score (NaN)")
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def sampled(passages: int, count: int) -> np.ndarray:
    """A random choice of a document's passages: the first, the last and others between, ascending.

    So PARADE is trained (Li et al., 2020, section 4). Drawn from PyTorch's generator, which training seeds.

    Args:
        passages: How many there are.
        count: How many are chosen; just the first one if 1.
    """
    if count >= passages:
        return np.arange(passages)
    ends = np.array([0, passages - 1][:count])
    between = 1 + torch.randperm(passages - 2)[: count - len(ends)].numpy()
    return np.sort(np.concatenate([ends, between]))
