"""The built-in demo collection: real long documents that every Python brings along.

``pt.get_dataset("longdoc:python-docs")`` is a complete test collection without a download or a licence question:
the documentation of the standard library and the language reference, hand-written questions with graded
judgements, and some thousand weakly supervised training topics. See `python_docs` for construction and figures.

Importing this package is cheap; the collection is rendered when a document is first asked for.
"""
from pyterrier_longdoc.data.provider import LongDocDatasetProvider

__all__ = ['LongDocDatasetProvider']
