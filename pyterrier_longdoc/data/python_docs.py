"""``longdoc:python-docs``: the documentation of Python as a test collection of long documents.

**Documents.** Every public module and submodule of the standard library (`stdlib_modules` lists the exceptions and
their reasons) and every topic of the language reference, as ``help()`` shows them on the running interpreter
(`render`, started by `documents`), and none cut to pieces: ``module:os`` is one document. Fields are docno, title
and text. So the collection follows the Python it runs on; the figures below are those of CPython 3.11.7 on Linux.

========================== ================================================================
documents                  526 (447 modules, 79 topics), 466,178 words
words a document           mean 886, median 470, longest 15,050
over 1,000 / 2,000 words   111 / 56 documents
========================== ================================================================

**Test topics** (``test``, the default). 207 questions as a programmer would ask them, written by a language model
that had the documents at hand, none with the name of a module or topic that answers it. 428 graded judgements:
2 = the document answers the question (322), 1 = it helps (106), one to four answers a question. Candidates were what
the author knew and the top 20 of BM25 for the question and for a second formulation in technical terms; of those not
known to be relevant the best passages of the first few were read, so documents without a judgement may be relevant
all the same. Every judgement rests on a phrase of the document (``evidence.tsv``), which is there in Python 3.11 to
3.13. In 42 % of the topics even the earliest answer comes after the first 512 words of its document, in 15 % after
2,000. The questions were calibrated once: BM25 reached an nDCG@10 of .35 on their first wording, after which 93
of them, mostly those on which it had found nothing, were worded more technically.

**Training topics** (``train``, ``dev``). 2,259 and 196 sentences of the documents, turned into queries and removed
from the collection for good, 9.5 % of its words; see `weak_topics`. ``dev`` is a held-out part of them for early
stopping, so that the test topics choose no model. Their judgements (2,609 and 221) are incomplete by construction:
other documents may answer as well. No sentence was taken from a paragraph with evidence for a test judgement.

**BM25** (PISA with default parameters, title and text in one field):

===== ======= ====== ====== =====
..    nDCG@10 R@10   R@100  RR
===== ======= ====== ====== =====
test  .620    .780   .954   .646
dev   .707    .872   .974   .666
train .702    .853   .978   .665
===== ======= ====== ====== =====
"""
import csv
import functools
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.data.documents import render_documents
from pyterrier_longdoc.data.weak_topics import WeakTopic, take_topics

FIELDS = ('title', 'text')
VARIANTS = ('test', 'train', 'dev')


class Collection(NamedTuple):
    """The rendered collection: documents (docno, title, text) by docno, and the topics taken out of it."""
    documents: dict[str, dict[str, str]]
    weak_topics: list[WeakTopic]


@functools.cache
def collection() -> Collection:
    """Renders the collection, once a process."""
    documents = {document['docno']: document for document in render_documents()}
    kept = read_evidence().groupby('docno')['phrase'].agg(list).to_dict()
    for docno, document in documents.items():  # a title would give a training topic away
        kept.setdefault(docno, []).append(document['title'].split(' — ')[-1].removesuffix(' …'))
    texts, weak_topics = take_topics({docno: document['text'] for docno, document in documents.items()}, kept)
    return Collection({docno: document | {'text': texts[docno]} for docno, document in documents.items()}, weak_topics)


def read_evidence() -> pd.DataFrame:
    """Where the test judgements come from: qid, docno and a phrase of the document that supports the judgement."""
    return _read('evidence.tsv', '\t', ['qid', 'docno', 'phrase'])


class PythonDocs(pt.datasets.Dataset):
    """The documentation of the running Python, with topics and judgements ``test``, ``train`` and ``dev``."""

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, str]]:
        """Yields the documents as dicts of docno, title and text."""
        documents = collection().documents.values()
        yield from (document.copy() for document in pt.tqdm(documents, desc='python-docs', disable=not verbose))

    def get_corpus_lang(self) -> str:
        """English."""
        return 'en'

    def get_topics(self, variant: Literal['test', 'train', 'dev'] | None = None) -> pd.DataFrame:
        """Returns the topics: ``test`` (default; questions by hand), ``train`` or ``dev`` (weak supervision).

        Raises:
            ValueError: If there is no such variant.
        """
        if _checked(variant) == 'test':
            return _read('topics.tsv', '\t', ['qid', 'query'])
        return pd.DataFrame([(topic.qid, topic.query) for topic in _weak(variant)], columns=['qid', 'query'])

    def get_topics_lang(self) -> str:
        """English."""
        return 'en'

    def get_qrels(self, variant: Literal['test', 'train', 'dev'] | None = None) -> pd.DataFrame:
        """Returns the judgements of a variant: 2 = answers the question, 1 = helps; weak supervision knows only 1.

        Raises:
            ValueError: If there is no such variant.
        """
        if _checked(variant) == 'test':
            qrels = _read('qrels.txt', ' ', ['qid', 'iteration', 'docno', 'label'])
            return qrels.drop(columns='iteration').astype({'label': 'int64'})
        judged = [(topic.qid, docno, 1) for topic in _weak(variant) for docno in topic.docnos]
        return pd.DataFrame(judged, columns=['qid', 'docno', 'label'])

    def text_loader(self, fields: Sequence[str] | str = 'text', *, verbose: bool = False) -> 'PythonDocsTextLoader':
        """Returns a transformer that adds the documents' fields by docno.

        Args:
            fields: ``title``, ``text``, several of them, or ``*`` for all.
            verbose: Show a progress bar.
        """
        return PythonDocsTextLoader(fields, verbose=verbose)

    def info(self) -> dict[str, float]:
        """Statistics of the collection and its topics, computed from the running Python's."""
        words = np.array([len(document['text'].split()) for document in self.get_corpus_iter()])
        figures = {'documents': len(words), 'words_mean': round(float(words.mean()), 1),
                   'words_median': float(np.median(words)), 'words_max': int(words.max()),
                   'documents_over_2000_words': int((words > 2000).sum())}
        for variant in VARIANTS:
            figures |= {f'{variant}_topics': len(self.get_topics(variant)),
                        f'{variant}_judgements': len(self.get_qrels(variant))}
        return figures

    def info_url(self) -> str:
        """Where the documentation stands on the web."""
        return 'https://docs.python.org/3/'

    @property
    def corpus_id(self) -> str:
        """Names the collection of the running Python; an index of another one is not taken for it."""
        return f'longdoc:python-docs, Python {platform.python_version()} on {sys.platform}'

    def _describe_component(self, component: str) -> bool | list[str] | None:
        return {'corpus': True, 'topics': list(VARIANTS), 'qrels': list(VARIANTS)}.get(component)

    def __repr__(self) -> str:
        return 'PythonDocs()'

    def __reduce__(self) -> tuple[Any, ...]:  # pt.get_dataset puts a closure on the instance, which cannot be pickled
        return PythonDocs, ()


class PythonDocsTextLoader(pt.Transformer):
    """Adds fields of the collection's documents to a frame by docno; a column of the same name is replaced."""

    schematic: ClassVar = {'label': 'TextLoader', 'help_url': 'https://docs.python.org/3/'}

    def __init__(self, fields: Sequence[str] | str = 'text', *, verbose: bool = False) -> None:
        """Chooses the fields.

        Args:
            fields: ``title``, ``text``, several of them, or ``*`` for all.
            verbose: Show a progress bar.

        Raises:
            ValueError: If a field does not exist.
        """
        wanted = FIELDS if fields == '*' else (fields,) if isinstance(fields, str) else tuple(fields)
        if unknown := set(wanted) - set(FIELDS):
            raise ValueError(f'python-docs has no field {sorted(unknown)}; there are {list(FIELDS)}')
        self.fields = wanted
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds the columns; the index starts at 0 afterwards, as with PyTerrier's other text loaders.

        Raises:
            KeyError: If the collection has no document of some docno.
        """
        pt.validate.columns(inp, includes=['docno'])
        out = inp.drop(columns=list(self.fields), errors='ignore').reset_index(drop=True)
        documents = self._documents(inp['docno'].tolist())
        return out.assign(**{field: pd.Series([document[field] for document in documents], dtype=object)
                             for field in self.fields})

    def _documents(self, docnos: list[str]) -> list[dict[str, str]]:
        known = collection().documents if docnos else {}
        if unknown := [docno for docno in docnos if docno not in known]:
            raise KeyError(f'python-docs has no document {unknown[0]!r} ({len(unknown)} of {len(docnos)} rows)')
        return [known[docno] for docno in pt.tqdm(docnos, desc='python-docs', unit='d', disable=not self.verbose)]

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """A cutoff after loading texts is a cutoff before."""
        return pt.RankCutoff(k) >> self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PythonDocsTextLoader) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash((PythonDocsTextLoader, self.fields))

    def __repr__(self) -> str:
        return f'PythonDocsTextLoader({list(self.fields)!r})'


def _checked(variant: str | None) -> str:
    if variant is not None and variant not in VARIANTS:
        raise ValueError(f'python-docs has no variant {variant!r}; there are {list(VARIANTS)}')
    return variant or 'test'


def _weak(split: str) -> list[WeakTopic]:
    return [topic for topic in collection().weak_topics if topic.split == split]


def _read(name: str, separator: str, columns: list[str]) -> pd.DataFrame:
    with (resources.files(__package__) / 'python_docs' / name).open(encoding='utf-8') as file:
        return pd.read_csv(file, sep=separator, names=columns, dtype=str, quoting=csv.QUOTE_NONE, keep_default_na=False)
