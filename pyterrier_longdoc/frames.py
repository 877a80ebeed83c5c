"""Texts out of the columns of a frame, and what is wrong with them."""

from __future__ import annotations

import warnings

import pandas as pd


def strings(inp: pd.DataFrame, column: str, asking: object) -> pd.Series:
    """A column of texts, missing documents as empty ones.

    Args:
        inp: The frame.
        column: The column; only that of documents may miss values, which is warned of.
        asking: Who reads the frame, named in messages.

    Raises:
        ValueError: If a query is missing.
        TypeError: If a value is neither text nor missing.
    """
    values = inp[column].reset_index(drop=True)
    missing = values.isna()
    if missing.any():
        first = inp.iloc[int(missing.to_numpy().argmax())]
        count = f"{int(missing.sum())} of {len(inp)} rows have no"
        if column == "query":
            raise ValueError(f"{asking}: {count} query (first qid {first.get('qid')!r})")
        message = f"{count} {column!r} (first docno {first.get('docno')!r}); they are read as empty documents"
        warnings.warn(f"{asking}: {message}", stacklevel=5)
    values = values.astype(object).where(~missing, "")
    wrong = ~values.map(lambda value: isinstance(value, str)).to_numpy(bool)
    if wrong.any():
        row = int(wrong.argmax())
        raise TypeError(
            f"{asking}: column {column!r} holds {type(values[row]).__name__}, not text "
            f"(first at docno {inp.iloc[row].get('docno')!r})"
        )
    return values
