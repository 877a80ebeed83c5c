"""The numbers behind three figures of the TKL paper (Hofstätter et al., SIGIR 2020), over whole runs.

Where in the documents a ranker looks, and whether long documents are retrieved as often as they are relevant.
:mod:`pyterrier_longdoc.plots` draws them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.checks import check_whole

if TYPE_CHECKING:
    from pyterrier_longdoc.explain import Explanation
    from pyterrier_longdoc.reranker import ReRanker


def region_positions(explanation: Explanation | pd.DataFrame, *, bins_per_doubling: int = 1) -> pd.DataFrame:
    """How often the first, second, ... window of a document begins where, in bins that grow with the position.

    Args:
        explanation: Of a whole run, or its frame (columns window and tokens); windows in the order of the ranker, which
            for TKL is the order of the peaks.
        bins_per_doubling: Bins between a position and its double; whole tokens, so there are fewer near the start.

    Returns:
        One row for each peak (``window``, from 0) and bin: ``first`` and ``end`` (past-last) position in tokens, where
        the first token is position 1; ``regions`` in the bin; their ``share`` of all of that peak, and ``density``,
        the share per token.

    Raises:
        ValueError: If a column is missing or ``bins_per_doubling`` is under 1.
    """
    frame = _frame(explanation)
    check_whole("bins_per_doubling", bins_per_doubling)
    positions = _begins(frame)
    doublings = int(np.ceil(np.log2(positions.max(initial=1) + 1)))
    steps = np.arange(doublings * bins_per_doubling + 1) / bins_per_doubling
    edges = np.unique(np.round(2**steps)).astype(np.int64)
    tables = []
    for window, rows in sorted(frame.groupby("window").indices.items()):
        counts, _ = np.histogram(positions[rows], bins=edges)
        share = counts / len(rows)
        columns = {"window": window, "first": edges[:-1], "end": edges[1:], "regions": counts, "share": share}
        tables.append(pd.DataFrame({**columns, "density": share / np.diff(edges)}))
    columns = ["window", "first", "end", "regions", "share", "density"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def share_after(explanation: Explanation | pd.DataFrame, position: int) -> pd.Series:
    """Share of the first, second, ... windows that begin after a token position (from 1), by window number."""
    frame = _frame(explanation)
    return pd.Series(_begins(frame) > position).groupby(frame["window"].to_numpy()).mean()


def length_limits(
    rankers: Mapping[str, ReRanker],
    res: pd.DataFrame,
    qrels: pd.DataFrame,
    limits: Sequence[int] = (200, 500, 1_000, 2_000),
    measure: Any = "nDCG@10",  # noqa: ANN401
) -> pd.DataFrame:
    """How well rankers do if they read more or less of each document (Figure 2 of the TKL paper, without retraining).

    Args:
        rankers: Rankers by name.
        res: Results with the rankers' text field.
        qrels: Columns qid, docno, label.
        limits: Tokens of a document that are read, in place of each ranker's ``max_doc_tokens``.
        measure: Of ``ir_measures``, or its name.

    Returns:
        One row for each limit and ranker: ``limit``, ``name``, and the measure under its name.
    """
    chosen, rows = ir_measures.parse_measure(str(measure)), []
    for limit in limits:
        for name, ranker in rankers.items():
            with warnings.catch_warnings():  # that documents are cut is the point
                warnings.filterwarnings("ignore", message=".*max_doc_tokens")
                run = ranker.apply_attributes(max_doc_tokens=limit)(res)
            (value,) = pt.Evaluate(run, qrels, metrics=[chosen]).values()
            rows.append({"limit": limit, "name": name, str(chosen): value})
    return pd.DataFrame(rows)


def length_bias(
    runs: Mapping[str, pd.DataFrame],
    qrels: pd.DataFrame,
    lengths: Mapping[str, int] | pd.Series | pd.DataFrame,
    *,
    k: int = 30,
    bins: int = 10,
    min_label: int = 1,
    text_field: str = "text",
) -> pd.DataFrame:
    """How likely a document is to be relevant, and to be retrieved in the top k, by its length.

    As Singhal et al. (SIGIR 1996) do it: documents are sorted by length and cut into bins of equal numbers; a bin's
    probability is its share of all (query, document) pairs that are relevant, or in the top k. A system without a bias
    retrieves from each bin as often as relevant documents lie there. Queries without a relevant document are left out.

    Args:
        runs: Frames with qid, docno and score (or rank) by name.
        qrels: Columns qid, docno, label.
        lengths: Length of each document by docno; or a frame with docno and ``length``, or with docno and
            ``text_field``, whose words are counted. These documents make the bins; pairs of others are left out,
            with a warning.
        k: Ranks that count as retrieved.
        bins: Number of bins.
        min_label: Labels from here on count as relevant.
        text_field: See ``lengths``.

    Returns:
        One row for each bin and series (``"relevant"``, then the runs): ``bin``, ``documents``, ``min_length``,
        ``median_length``, ``max_length``, ``series``, ``pairs``, ``probability``.

    Raises:
        ValueError: If a column is missing, an option is out of range, or nothing is relevant.
    """
    sizes = _lengths(lengths, text_field)
    if k < 1 or not 1 <= bins <= len(sizes):
        raise ValueError(f"k must be at least 1 and bins from 1 to the {len(sizes)} documents, got k={k}, bins={bins}")
    require(qrels, ["qid", "docno", "label"], "qrels")
    relevant = qrels[qrels["label"] >= min_label].drop_duplicates(["qid", "docno"])
    if "relevant" in runs:
        raise ValueError("a run cannot be named 'relevant': that is the series of the relevant documents")
    series = {"relevant": relevant}
    series |= {name: _top(run, k, name, set(relevant["qid"])) for name, run in runs.items()}
    parts = np.array_split(np.arange(len(sizes)), bins)
    bin_of = pd.Series(np.repeat(np.arange(bins), [len(part) for part in parts]), index=sizes.index)
    about = pd.DataFrame({
        "bin": np.arange(bins),
        "documents": [len(part) for part in parts],
        "min_length": [int(sizes.iloc[part[0]]) for part in parts],
        "median_length": [float(sizes.iloc[part].median()) for part in parts],
        "max_length": [int(sizes.iloc[part[-1]]) for part in parts],
    })
    tables = []
    for name, pairs in series.items():
        counts = _counts(name, pairs, bin_of, bins)
        tables.append(about.assign(series=name, pairs=counts, probability=counts / counts.sum()))
    return pd.concat(tables, ignore_index=True)


def _lengths(lengths: Mapping[str, int] | pd.Series | pd.DataFrame, text_field: str) -> pd.Series:
    """Lengths by docno, shortest first; equal ones in the order of their names."""
    if isinstance(lengths, pd.DataFrame):
        require(lengths, ["docno", "length" if "length" in lengths else text_field], "lengths")
        lengths = lengths.drop_duplicates("docno").set_index("docno")
        texts = lengths.get(text_field)
        lengths = lengths["length"] if "length" in lengths else texts.fillna("").str.split().str.len()
    series = pd.Series(lengths).rename("length").rename_axis("docno").reset_index()
    return series.sort_values(["length", "docno"]).set_index("docno")["length"]


def _top(run: pd.DataFrame, k: int, name: str, queries: set[str]) -> pd.DataFrame:
    order = "score" if "score" in run else "rank"
    require(run, ["qid", "docno", order], f"run {name!r}")
    run = run[run["qid"].isin(queries)].drop_duplicates(["qid", "docno"])
    if order == "score":
        return run[run.groupby("qid")["score"].rank(method="first", ascending=False) <= k]
    return run[run.groupby("qid")["rank"].rank(method="first") <= k]


def _counts(name: str, pairs: pd.DataFrame, bin_of: pd.Series, bins: int) -> np.ndarray:
    found = pairs["docno"].map(bin_of)
    missing = found.isna()
    if missing.all():
        raise ValueError(f"{name!r} has no pair (of a judged query) whose document has a length")
    if missing.any():
        warnings.warn(
            f"{int(missing.sum())} of {len(pairs)} pairs of {name!r} are left out: their documents have no length "
            f"(first docno {pairs['docno'][missing].iloc[0]!r})",
            stacklevel=3,
        )
    return np.bincount(found[~missing].astype(np.int64), minlength=bins)


def _frame(explanation: Explanation | pd.DataFrame) -> pd.DataFrame:
    frame = explanation if isinstance(explanation, pd.DataFrame) else explanation.frame
    require(frame, ["window", "tokens"], "explanation")
    return frame


def _begins(frame: pd.DataFrame) -> np.ndarray:
    return np.array([tokens[0][0] + 1 for tokens in frame["tokens"]], np.int64)


def require(frame: pd.DataFrame, columns: list[str], name: str) -> None:
    """Checks the columns of a frame.

    Raises:
        ValueError: If one is missing.
    """
    missing = [column for column in columns if column not in frame]
    if missing:
        raise ValueError(f"{name} has no column {', '.join(map(repr, missing))}; it has {list(frame.columns)}")
