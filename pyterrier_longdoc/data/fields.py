"""One text per document, whatever fields its collection has.

MS MARCO documents come as url, title and body, other collections as title and text or as text alone; a ranker reads one
column. The functions here choose the fields, load them for the documents of a frame only when it passes through the
pipeline, and join them, so that the name of the data set is all that differs between two experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import pandas as pd
import pyterrier as pt

Dataset: TypeAlias = "str | pt.datasets.Dataset"

_DOCS = "https://github.com/terrierteam/pyterrier_longdoc#readme"


def text_loader(
    dataset: Dataset, fields: Sequence[str] | str | None = None, *, to: str = "text", separator: str = "\n"
) -> TextLoader:
    """A transformer that adds the joined text of each document by its ``docno``.

    Args:
        dataset: A data set or its name, such as ``irds:msmarco-document``; an index with a text loader will do, too.
        fields: Fields in the order in which they are joined; by default as :func:`default_fields` chooses.
        to: Column that gets the text.
        separator: Put between two fields.

    Raises:
        ValueError: If there is no such field, or the data set has no text loader.
    """
    return TextLoader(dataset, fields, to=to, separator=separator)


def join_fields(
    fields: Sequence[str] = ("url", "title", "body"), *, to: str = "text", separator: str = "\n"
) -> JoinFields:
    """A transformer that joins text columns which a frame has already; see :class:`JoinFields`."""
    return JoinFields(fields, to=to, separator=separator)


def corpus_texts(
    dataset: Dataset, fields: Sequence[str] | str | None = None, *, separator: str = "\n", verbose: bool = False
) -> Iterator[str]:
    """The joined text of every document of a collection, one after another, as ``TKL(corpus=...)`` takes them.

    Arguments as in :func:`corpus_documents`.
    """
    for document in corpus_documents(dataset, fields, separator=separator, verbose=verbose):
        yield document["text"]


def corpus_documents(
    dataset: Dataset,
    fields: Sequence[str] | str | None = None,
    *,
    to: str = "text",
    separator: str = "\n",
    verbose: bool = False,
) -> Iterator[dict[str, str]]:
    """Every document of a collection as ``{"docno": ..., "text": ...}``, one at a time.

    Args:
        dataset: A data set or its name.
        fields: Fields in the order in which they are joined; by default as :func:`default_fields` chooses.
        to: Key of the joined text.
        separator: Put between two fields.
        verbose: Whether to show progress.

    Raises:
        ValueError: If there is no such field, or the collection is empty.
    """
    source = as_dataset(dataset)
    documents = iter(source.get_corpus_iter(verbose=verbose))
    first = next(documents, None)
    if first is None:
        raise ValueError(f"{source!r} holds no document")
    available = _loadable_fields(source) if hasattr(source, "text_loader") else [*first]
    names = _choose(source, available, fields)
    for document in chain([first], documents):
        text = _join([document.get(name) for name in names], names, separator)
        yield {"docno": document["docno"], to: text or ""}


def as_dataset(dataset: Dataset) -> pt.datasets.Dataset:
    """The data set of a name; a data set is given back as it is."""
    return pt.get_dataset(dataset) if isinstance(dataset, str) else dataset


def default_fields(available: Sequence[str]) -> list[str]:
    """The fields that make a document's text.

    ``text`` if there is one; else ``url``, ``title`` and ``body`` as far as they exist (MS MARCO); else all of them.
    """
    if "text" in available:
        return ["text"]
    return [name for name in ("url", "title", "body") if name in available] if "body" in available else list(available)


class JoinFields(pt.Transformer):
    """Joins text columns of a frame into one. Rows, order, index and all other columns stay.

    A missing or empty field is left out; where all are missing, the text is missing. Required input columns:
    ``fields``. Output: the same and ``to``.

    Args:
        fields: Columns in the order in which they are joined.
        to: Column that gets the text.
        separator: Put between two fields.

    Raises:
        ValueError: If no field is given.
    """

    schematic: ClassVar = {"label": "JoinFields", "help_url": _DOCS}

    def __init__(
        self, fields: Sequence[str] = ("url", "title", "body"), *, to: str = "text", separator: str = "\n"
    ) -> None:
        super().__init__()
        self.fields = _names(fields)
        self.to = to
        self.separator = separator

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds the joined column.

        Raises:
            TypeError: If a field is neither text nor missing.
        """
        pt.validate.columns(inp, includes=list(self.fields), context=self)
        return inp.assign(**{self.to: _joined(inp, self.fields, self.separator)})

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """A cutoff after joining is a cutoff before."""
        return pt.RankCutoff(k) >> self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JoinFields) and _key(self) == _key(other)

    def __hash__(self) -> int:
        return hash(_key(self))

    def __repr__(self) -> str:
        return f"join_fields({list(self.fields)!r}, to={self.to!r})"


class TextLoader(pt.Transformer):
    """Adds the text of each document by ``docno``, loading it once however often the document occurs in the frame.

    Rows, order, index and all other columns stay; a column ``to`` that exists is replaced. Required input column:
    ``docno``. Output: the same and ``to``. Arguments and errors as in :func:`text_loader`.
    """

    schematic: ClassVar = {"label": "TextLoader", "help_url": _DOCS}

    def __init__(
        self, dataset: Dataset, fields: Sequence[str] | str | None = None, *, to: str = "text", separator: str = "\n"
    ) -> None:
        super().__init__()
        self.dataset = as_dataset(dataset)
        if not hasattr(self.dataset, "text_loader"):
            raise ValueError(f"{self.dataset!r} has no text_loader: its documents cannot be looked up by docno")
        self.fields = tuple(_choose(self.dataset, _loadable_fields(self.dataset), fields))
        self.to = to
        self.separator = separator
        self._loader = self.dataset.text_loader(list(self.fields))

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds the texts.

        Raises:
            ValueError: If the data set lacks one of the documents.
        """
        pt.validate.columns(inp, includes=["docno"], context=self)
        if inp.empty:
            return inp.assign(**{self.to: pd.Series(dtype=object)})
        wanted = pd.DataFrame({"docno": inp["docno"].unique()})
        try:
            loaded = self._loader(wanted)
        except KeyError as error:
            raise ValueError(f"{self.dataset!r} lacks documents of these results: {_message(error)}") from error
        text_of = dict(zip(loaded["docno"], _joined(loaded, self.fields, self.separator), strict=True))
        texts = [text_of[docno] for docno in inp["docno"]]
        return inp.assign(**{self.to: pd.Series(texts, index=inp.index, dtype=object)})  # rows share their texts

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """A cutoff after loading is a cutoff before."""
        return pt.RankCutoff(k) >> self

    def subtransformers(self) -> dict[str, pt.Transformer]:
        """None: the data set's own loader is a detail."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:  # by name: an ir_datasets data set cannot be pickled
        name = getattr(self.dataset, "_irds_id", None)
        return _rebuild, (self.dataset if name is None else f"irds:{name}", self.fields, self.to, self.separator)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextLoader) and (_key(self), repr(self)) == (_key(other), repr(other))

    def __hash__(self) -> int:
        return hash(_key(self))

    def __repr__(self) -> str:
        return f"text_loader({self.dataset!r}, {list(self.fields)!r}, to={self.to!r})"


def _rebuild(dataset: Dataset, fields: tuple[str, ...], to: str, separator: str) -> TextLoader:
    return TextLoader(dataset, fields, to=to, separator=separator)


def _key(transformer: JoinFields | TextLoader) -> tuple[Any, ...]:
    return type(transformer).__name__, transformer.fields, transformer.to, transformer.separator


def _loadable_fields(dataset: pt.datasets.Dataset) -> list[str]:
    loader = dataset.text_loader("*")
    names = getattr(loader, "fields", None) or pt.inspect.transformer_outputs(loader, ["docno"])
    return [name for name in names if name not in ("docno", "docid")]


def _choose(dataset: pt.datasets.Dataset, available: list[str], fields: Sequence[str] | str | None) -> list[str]:
    if fields is None:
        names = default_fields(available)
        if not names:
            raise ValueError(f"{dataset!r} has no text field")
        return names
    names = list(_names(fields))
    if unknown := [name for name in names if name not in available]:
        raise ValueError(f"{dataset!r} has no field {', '.join(map(repr, unknown))}; it has {', '.join(available)}")
    return names


def _names(fields: Sequence[str] | str) -> tuple[str, ...]:
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    if not names:
        raise ValueError("fields must name at least one field")
    return names


def _joined(frame: pd.DataFrame, fields: Sequence[str], separator: str) -> pd.Series:
    rows = zip(*(frame[name] for name in fields), strict=True)
    texts = [_join(row, fields, separator) for row in rows]
    return pd.Series(texts, index=frame.index, dtype=object)


def _join(values: Iterable[Any], fields: Sequence[str], separator: str) -> str | None:
    known = []
    for name, value in zip(fields, values, strict=True):
        if isinstance(value, str):
            known.append(value)
        elif not (value is None or value is pd.NA or value != value):  # NaN is the value that differs from itself
            raise TypeError(f"field {name!r} holds {type(value).__name__}, not text")
    return separator.join(part for part in known if part) if known else None


def _message(error: KeyError) -> str:
    return str(error.args[0]) if error.args else repr(error)
