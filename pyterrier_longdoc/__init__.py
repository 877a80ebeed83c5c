"""Neural re-rankers for long documents as PyTerrier transformers.

``bm25 >> text >> TKL.from_pretrained(...)``: a document is a set of windows over its tokens, and every ranker of this
package reads all of them. Importing the package is cheap: torch and transformers are loaded with the first ranker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Public name -> module that holds it.
_PUBLIC = {
    "ReRanker": "reranker",
    "TKL": "tkl",
    "TK": "kernels",
    "KNRM": "kernels",
    "ConvKNRM": "kernels",
    "Vectors": "text.vectors",
    "LongDocModel": "artifact",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    from pyterrier_longdoc.artifact import LongDocModel as LongDocModel
    from pyterrier_longdoc.kernels import KNRM as KNRM
    from pyterrier_longdoc.kernels import TK as TK
    from pyterrier_longdoc.kernels import ConvKNRM as ConvKNRM
    from pyterrier_longdoc.reranker import ReRanker as ReRanker
    from pyterrier_longdoc.text.vectors import Vectors as Vectors
    from pyterrier_longdoc.tkl import TKL as TKL


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
