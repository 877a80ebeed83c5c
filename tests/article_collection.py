"""Small collections for tests: one of our own, and the same served by ir_datasets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd
import pyterrier as pt

_TEXTS = [
    ("Joining paths", "How to join the parts of a path into one, and why the separator isn’t everywhere the same."),
    ("Cafés of Paris", "A café in Paris serves coffee. The waiter is naïve.\nA second paragraph is about croissants."),
    ("Missing values", "NA stands for a missing value: a path to nothing, a null, a nan."),
    ("Sorting", "Sorting a list keeps equal elements in their order. Running time grows with the length of the list."),
    ("Threads", "A thread runs beside others and waits for a lock; two threads that wait for each other never run."),
]
_DOCNOS = ["d0", "d1", "NA", "null", 'd"4']
ARTICLES = [
    {"docno": docno, "url": f"https://example.org/{number}", "title": title, "body": body}
    for number, (docno, (title, body)) in enumerate(zip(_DOCNOS, _TEXTS, strict=True))
]
QUERIES = {
    "1": "how do I join a path?",
    "2": "coffee in a cafe",
    "10": '(sorting) AND a "list": running^time',
    "q4": "the of",  # stop words only
}


class _Loader(pt.Transformer):
    """As most text loaders of data sets: replaces columns and starts the index at 0."""

    def __init__(self, collection: Articles, fields: list[str]) -> None:
        self.collection = collection
        self.fields = fields

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        by_docno = {article["docno"]: article for article in self.collection.articles}
        docnos = inp["docno"].tolist()
        self.collection.loaded += docnos
        columns = {field: [by_docno[docno][field] for docno in docnos] for field in self.fields}
        return inp.drop(columns=self.fields, errors="ignore").reset_index(drop=True).assign(**columns)


class Articles(pt.datasets.Dataset):
    """Five articles with url, title and body. Counts what is read of them."""

    def __init__(self, articles: Sequence[dict[str, str]] = ARTICLES, name: str = "Articles()") -> None:
        self.articles = articles
        self.name = name
        self.loaded: list[str] = []
        self.iterated = 0

    def get_corpus_iter(self, verbose: bool = True) -> Iterator[dict[str, str]]:
        for article in self.articles:
            self.iterated += 1
            yield dict(article)

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        return pd.DataFrame(list(QUERIES.items()), columns=["qid", "query"])

    def text_loader(self, fields: Sequence[str] | str = "*", *, verbose: bool = False) -> _Loader:
        return _Loader(self, ["url", "title", "body"] if fields == "*" else list(fields))

    def __repr__(self) -> str:
        return self.name


#: PyTerrier looks for fields whose annotation is ``str`` itself, not its name.
_Doc = NamedTuple("_Doc", [("doc_id", str), ("url", str), ("title", str), ("body", str), ("numbers", list)])  # noqa: UP014


@contextlib.contextmanager
def registered(
    name: str,
    articles: Sequence[dict[str, str]] = ARTICLES,
    queries: dict[str, str] = QUERIES,
    judged: Sequence[tuple[str, str, int]] = (),
):
    """Registers the articles with ir_datasets, in memory, with one more data set over them: ``name/topics``."""
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericQrel, GenericQuery
    from ir_datasets.indices import Docstore

    documents = [_Doc(each["docno"], each["url"], each["title"], each["body"], [1]) for each in articles]

    class Store(Docstore):
        def get_many_iter(self, doc_ids):
            wanted = set(doc_ids)
            return (document for document in documents if document.doc_id in wanted)

    class Docs(BaseDocs):
        def docs_iter(self):
            return iter(documents)

        def docs_count(self):
            return len(documents)

        def docs_cls(self):
            return _Doc

        def docs_store(self, field="doc_id"):
            return Store(_Doc)

        def docs_lang(self):
            return "en"

    class Queries(BaseQueries):
        def queries_iter(self):
            return (GenericQuery(*pair) for pair in queries.items())

        def queries_cls(self):
            return GenericQuery

    class Qrels(BaseQrels):
        def qrels_iter(self):
            return (GenericQrel(*each) for each in judged)

        def qrels_defs(self):
            return {1: "relevant"}

        def qrels_cls(self):
            return GenericQrel

    docs = Docs()
    sets = {name: Dataset(docs), f"{name}/topics": Dataset(docs, Queries(), Qrels())}
    for key, dataset in sets.items():
        ir_datasets.registry.register(key, dataset)
    try:
        yield f"irds:{name}/topics"
    finally:
        for key in sets:
            ir_datasets.registry._registered.pop(key, None)
