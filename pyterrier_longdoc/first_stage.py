"""First stages: who picks the documents that a ranker reads.

Each function takes a data set and a directory, indexes the collection into it once, and gives the retriever. Only the
name of the data set differs between the demo and MS MARCO: a collection is streamed, never held in memory. An index is
complete or it is not there: it is built beside its place and moved in one step, and it remembers which collection and
which fields it holds, so that it is never taken for another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyterrier as pt

from pyterrier_longdoc.checkpoint import write_directory
from pyterrier_longdoc.data.fields import Dataset, as_dataset, corpus_documents, text_loader
from pyterrier_longdoc.pisa import BM25, open_index, plain, quiet

if TYPE_CHECKING:
    from pyterrier_dr import BiEncoder

#: Says what an index holds; written beside the index's own files.
_CONTENTS = "longdoc_contents.json"
#: Documents that PISA inverts in memory at once: long ones of 6 kB each take some 700 MB.
_DOCUMENTS_AT_ONCE = 20_000
#: Documents that are read ahead at most.
_HEAD = 1_000


def bm25(
    dataset: Dataset,
    index_path: str | Path,
    *,
    fields: Sequence[str] | str | None = None,
    num_results: int = 100,
    k1: float = 0.9,
    b: float = 0.4,
    stemmer: str = "porter2",
    stopwords: str = "terrier",
    threads: int = 1,
    verbose: bool = True,
) -> BM25:
    """BM25 by PISA: embedded, without Java, for English. Indexes the collection on the first call.

    Args:
        dataset: A data set or its name, such as ``longdoc:python-docs`` or ``irds:msmarco-document/trec-dl-2019``. Data
            sets over the same collection share an index.
        index_path: Directory of the index.
        fields: Fields that are indexed; by default those that
            :func:`~pyterrier_longdoc.data.fields.text_loader` gives a ranker to read.
        num_results: Documents per query.
        k1: Saturation of the term frequency. 0.9 and 0.4 are the usual defaults; for MS MARCO documents Anserini gives
            4.46 and 0.82 as best for the reciprocal rank of the development queries.
        b: Normalisation by document length, from 0 to 1.
        stemmer: ``porter2``, ``krovetz`` or ``none``; part of the index.
        stopwords: Left out of queries: the list of ``terrier``, the shorter one of ``lucene``, or ``none``.
        threads: Threads for indexing and for retrieval.
        verbose: Whether to show progress.

    Raises:
        ImportError: If pyterrier-pisa is not installed.
        ValueError: If the directory holds another collection, or a document cannot be indexed.
    """
    pisa = _require("pyterrier_pisa")
    source, path = as_dataset(dataset), Path(index_path)
    contents = {**_contents(source, fields), "engine": "pisa", "stemmer": pisa.PisaStemmer(stemmer).value}
    options = {"num_results": num_results, "k1": k1, "b": b, "stopwords": stopwords, "threads": threads}

    def build(directory: Path) -> None:
        corpus = corpus_documents(source, contents["fields"], verbose=verbose)
        documents = _Checked(({**document, "text": plain(document["text"])} for document in corpus), "[A-Za-z0-9]")
        index = pisa.PisaIndex(str(directory), "text", stemmer=contents["stemmer"], threads=threads)
        with quiet(1):  # progress goes to standard error
            index.indexer(batch_size=_DOCUMENTS_AT_ONCE).index(documents)
        documents.verify(len(index))
        open_index(str(directory), **options)

    _build_once(path, contents, build)
    return BM25(path, **options)


def terrier_bm25(
    dataset: Dataset,
    index_path: str | Path,
    *,
    fields: Sequence[str] | str | None = None,
    num_results: int = 100,
    k1: float = 1.2,
    b: float = 0.75,
    threads: int = 1,
    verbose: bool = True,
) -> pt.Transformer:
    """BM25 by Terrier, with its stemming, stop words and default parameters; arguments as in :func:`bm25`.

    Needs Java 11 or newer and Terrier's jars, which PyTerrier downloads once.

    Raises:
        RuntimeError: If Java or the jars are missing.
        ValueError: If the directory holds another collection, or a document cannot be indexed.
    """
    _start_java()
    source, path = as_dataset(dataset), Path(index_path)
    contents = {**_contents(source, fields), "engine": "terrier"}

    def build(directory: Path) -> None:
        documents = _Checked(corpus_documents(source, contents["fields"], verbose=verbose))
        index = pt.terrier.TerrierIndex(str(directory))
        index.indexer(meta={"docno": 100}, text_attrs=["text"], threads=threads).index(documents)
        documents.verify(len(index))

    _build_once(path, contents, build)
    return pt.terrier.TerrierIndex(str(path)).bm25(k1=k1, b=b, num_results=num_results, threads=threads)


def ance(
    dataset: Dataset,
    index_path: str | Path,
    *,
    fields: Sequence[str] | str | None = None,
    num_results: int = 100,
    encoder: BiEncoder | None = None,
    verbose: bool = True,
) -> pt.Transformer:
    """Dense retrieval through pyterrier-dr, by default with ANCE (FirstP): one vector for the head of each document.

    The search is exhaustive, over vectors on disk: 10 GB for MS MARCO documents.

    Args:
        dataset: As in :func:`bm25`.
        index_path: Directory of the vectors.
        fields: Fields that are encoded, as in :func:`bm25`.
        num_results: Documents per query.
        encoder: Another bi-encoder of pyterrier-dr in place of ``Ance.firstp()``.
        verbose: Whether to show progress.

    Returns:
        Encoder and retriever. The query's vector is dropped: a later bi-encoder would take it for its own.

    Raises:
        ImportError: If pyterrier-dr is not installed.
        ValueError: If the directory holds another collection or another encoder's vectors.
    """
    dense = _require("pyterrier_dr")
    encoder = dense.Ance.firstp() if encoder is None else encoder
    source, path = as_dataset(dataset), Path(index_path)
    contents = {**_contents(source, fields), "engine": "flex", "encoder": _name_of(encoder)}

    def build(directory: Path) -> None:
        directory.rmdir()  # FlexIndex takes a directory that exists for an index
        documents = _Checked(corpus_documents(source, contents["fields"], to=encoder.text_field, verbose=verbose))
        index = dense.FlexIndex(str(directory), verbose=False)
        (encoder.doc_encoder() >> index).index(documents)
        documents.verify(len(index))

    _build_once(path, contents, build)
    index = dense.FlexIndex(str(path), verbose=False)
    return encoder.query_encoder() >> index.np_retriever(num_results=num_results, drop_query_vec=True)


class _Checked:
    """Documents on their way into an indexer: checked, counted, and with the error kept that ends them early.

    PISA and Terrier read them in a thread of their own, where an error is only printed and leaves half an index. Before
    the indexer starts, the first documents are read, up to one that matches ``word``: a PISA without any word to index
    ends the process.
    """

    def __init__(self, documents: Iterable[dict[str, str]], word: str = "") -> None:
        self.count = 0
        self.error: Exception | None = None
        self._documents = iter(documents)
        self._head: list[dict[str, str]] = []
        for document in islice(self._documents, _HEAD):
            self._head.append(self._check(document))
            if any(re.search(word, text) for name, text in document.items() if name != "docno"):
                return
        raise ValueError(f"the first {len(self._head)} documents hold no word of ASCII letters: PISA knows no other")

    def __iter__(self) -> Iterator[dict[str, str]]:
        yield from self._head
        try:
            for document in self._documents:
                yield self._check(document)
        except Exception as error:
            self.error = error  # and the documents end here

    def _check(self, document: dict[str, str]) -> dict[str, str]:
        docno = document["docno"]
        if not isinstance(docno, str) or re.fullmatch(r"\S+", docno) is None:
            raise ValueError(f"docno {docno!r} cannot stand in a run file: it must be text without white space")
        self.count += 1
        return document

    def verify(self, indexed: int) -> None:
        """Raises what ended the documents early, or an error if the index has another size than was read."""
        if self.error is not None:
            raise self.error
        if indexed != self.count:
            raise RuntimeError(f"the index holds {indexed} documents where {self.count} were read")


def _build_once(path: Path, contents: dict[str, Any], build: Callable[[Path], None]) -> None:
    if path.exists():
        _check_contents(path, contents)
        return

    def write(directory: Path) -> None:
        build(directory)
        (directory / _CONTENTS).write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")

    write_directory(path, write)


def _check_contents(path: Path, wanted: dict[str, Any]) -> None:
    try:
        found = json.loads((path / _CONTENTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"{path} exists and is no index of this package; choose another index_path") from None
    if differing := [name for name in wanted if found.get(name) != wanted[name]]:
        there = ", ".join(f"{name} {found.get(name)!r}" for name in differing)
        asked = ", ".join(f"{name} {wanted[name]!r}" for name in differing)
        raise ValueError(f"{path} is an index with {there}, not {asked}; choose another index_path, or delete it")


def _contents(dataset: pt.datasets.Dataset, fields: Sequence[str] | str | None) -> dict[str, Any]:
    return {"collection": _collection(dataset), "fields": list(text_loader(dataset, fields).fields)}


def _collection(dataset: pt.datasets.Dataset) -> str:
    """Names the collection: data sets that differ in their topics only have the same one."""
    if (name := getattr(dataset, "_irds_id", None)) is not None:
        import ir_datasets

        return f"irds:{ir_datasets.docs_parent_id(name)}"
    return str(getattr(dataset, "corpus_id", None) or re.sub(r" object at 0x[0-9a-f]+", "", repr(dataset)))


def _name_of(encoder: BiEncoder) -> str:
    return str(getattr(encoder, "model_name", None) or type(encoder).__name__)


def _start_java() -> None:
    if pt.java.started():
        return
    try:
        pt.java.init()
    except Exception as error:  # whatever keeps it from starting: no Java, no network for the jars, an old version
        raise RuntimeError(
            "Terrier does not start: it needs Java 11 or newer and its jars, which PyTerrier downloads once "
            f"({error}). first_stage.bm25 needs neither"
        ) from error


def _require(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this needs {module}: pip install {module.replace('_', '-')} ({error})") from error
