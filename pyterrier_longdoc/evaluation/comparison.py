"""What rankers cost, beside what they achieve: parameters, operations, speed, and how much of a document they read."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyterrier_longdoc.text.tokens import tokenize
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker


def costs(rankers: Mapping[str, ReRanker], res: pd.DataFrame, *, counted: int = 8) -> pd.DataFrame:
    """What it costs to score some results, ranker by ranker.

    Args:
        rankers: Rankers by name.
        res: Results with the rankers' text field; not changed.
        counted: Operations are counted over so many of the rows: counting takes time.

    Returns:
        One row a ranker: ``name``; ``parameters`` (millions, word vectors included); ``GFLOP/doc`` (10⁹ floating point
        operations for a document, a multiplication with an addition being two: matrix products and attention, which
        are all but a few per cent); ``docs/s`` (rows, tokenising included, after a first one that warms up); ``read``
        (the share of the documents' tokens that were read, where passages are chosen by the encoder).
    """
    rows = []
    for name, ranker in rankers.items():
        ranker(res.head(1))
        start = time.perf_counter()
        out = ranker(res)
        taken = time.perf_counter() - start
        rows.append(
            {
                "name": name,
                "parameters": sum(parameter.numel() for parameter in ranker.model.parameters()) / 1e6,
                "GFLOP/doc": operations(ranker, res.head(counted)) / 1e9,
                "docs/s": len(res) / taken,
                "read": _share_read(ranker, out),
            }
        )
    return pd.DataFrame(rows)


def operations(ranker: ReRanker, res: pd.DataFrame) -> float:
    """Floating point operations of the model for one row of some results, on average.

    Args:
        ranker: The ranker; documents that it keeps encoded are encoded again.
        res: Results; not changed.

    Raises:
        ValueError: If there is no row.
    """
    from torch import no_grad
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    if not len(res):
        raise ValueError("there are no results to count operations for")
    queries, documents, pairs = ranker._unique_texts(res)
    tokens = ranker.tokenize(queries), _quietly_read(ranker, documents)
    # PyTorch's counter does not see into inference mode, nor into fused attention on a CPU
    with no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        ranker.model(*tokens, pairs.astype(np.int64), ranker.budget())
    return counter.get_total_flops() / len(res)


def _share_read(ranker: ReRanker, out: pd.DataFrame) -> float:
    texts = out[ranker.text_field].dropna().drop_duplicates().tolist()
    every = tokenize(ranker.tokenizer, texts).lengths.sum()
    share = _quietly_read(ranker, texts).lengths.sum() / max(1, every)
    return float(share * (out["passages_read"].mean() if "passages_read" in out else 1.0))


def _quietly_read(ranker: ReRanker, texts: list[str]) -> Ragged:
    """The token ids that the ranker reads; what is cut is said when it scores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ranker._read(texts)
