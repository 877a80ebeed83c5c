"""Reading TREC runs: checked line by line, joined with their queries, cut into shards."""

from __future__ import annotations

import argparse
import csv
import re
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from pyterrier_longdoc.data.fields import Dataset, as_dataset

_COLUMNS = ["qid", "Q0", "docno", "rank", "score", "tag", "more"]


def read_run(path: Path, depth: int) -> pd.DataFrame:
    """The first documents of each query of a TREC run, queries sorted by qid.

    Unlike :func:`pt.io.read_results` it takes ``NA``, ``null`` and quotation marks for what they are: part of a name.

    Args:
        path: The run, six columns, may be compressed.
        depth: Documents per query: those of the highest score, as every evaluation takes a run; ties by rank.

    Returns:
        Columns qid, docno, score, rank.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no TREC run, or a document occurs twice for a query.
    """
    lines = _lines(path)
    lines = lines[lines["qid"] != ""]  # an empty line
    if lines.empty:
        raise ValueError(f"{path} holds no results")
    rank, score = (pd.to_numeric(lines[name], errors="coerce").astype("float64") for name in ("rank", "score"))
    bad = (lines["tag"] == "") | (lines["more"] != "") | ~np.isfinite(rank) | ~np.isfinite(score)
    if bad.any():
        number, line = bad.idxmax(), " ".join(lines.loc[bad.idxmax()]).strip()
        raise ValueError(f"{path}, line {number + 1}: not 'qid Q0 docno rank score tag': {line[:80]!r}")
    run = lines[["qid", "docno"]].assign(score=score, rank=rank)
    if (double := run.duplicated(["qid", "docno"])).any():
        row = run[double].iloc[0]
        raise ValueError(f"{path}: document {row.docno!r} occurs twice for query {row.qid!r}")
    run = run.sort_values(["qid", "score", "rank"], ascending=[True, False, True], kind="stable")
    return run.groupby("qid").head(depth).reset_index(drop=True)


def with_queries(run: pd.DataFrame, dataset: Dataset, variant: str | None = None) -> pd.DataFrame:
    """The run with the text of its queries.

    Raises:
        ValueError: If the topics have no ``query``, or lack a query of the run.
    """
    source = as_dataset(dataset)
    topics = read_topics(source, variant)
    query_of = dict(zip(topics["qid"], topics["query"], strict=True))
    if missing := [qid for qid in run["qid"].unique() if not isinstance(query_of.get(qid), str)]:
        named = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        raise ValueError(f"the topics of {source!r} lack {len(missing)} queries of the run: {named}")
    return run.assign(query=run["qid"].map(query_of))


def read_topics(dataset: Dataset, variant: str | None = None) -> pd.DataFrame:
    """The topics of a data set: qid (text) and query.

    Raises:
        ValueError: If there is no such variant, or one has to be chosen.
    """
    source = as_dataset(dataset)
    try:
        topics = source.get_topics(variant)
    except AssertionError as error:  # how ir_datasets says it
        raise ValueError(str(error)) from error
    if "query" not in topics.columns:
        names = ", ".join(column for column in topics.columns if column != "qid")
        raise ValueError(f"{source!r} has topics with {names}: choose one with --topics-variant")
    return topics.assign(qid=topics["qid"].astype(str))


def shard_of(run: pd.DataFrame, shard: str) -> pd.DataFrame:
    """The i-th of n parts of a run, by consecutive queries, from a text ``i/n`` that counts from 1.

    Raises:
        ValueError: If it is no such text.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise ValueError(f"--shard must be I/N with 1 <= I <= N, such as 2/8, got {shard!r}")
    qids = np.array_split(run["qid"].unique(), count)[number - 1]
    return run[run["qid"].isin(qids)].reset_index(drop=True)


def _lines(path: Path) -> pd.DataFrame:
    """The columns of every line as text, with one more for what is too many; too few are empty."""
    try:
        with warnings.catch_warnings(action="ignore", category=pd.errors.ParserWarning):
            return pd.read_csv(
                path, sep=r"\s+", names=_COLUMNS, dtype=str, na_filter=False, quoting=csv.QUOTE_NONE, index_col=False,
                skip_blank_lines=False, encoding="utf-8",
            )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no TREC run, or damaged: {str(error).strip()}") from error


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)
