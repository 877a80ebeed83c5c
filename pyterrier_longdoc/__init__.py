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
    "DualEncoder": "dual_encoder",
    "SMITH": "smith",
    "CoLDE": "colde",
    "Socialformer": "socialformer",
    "MatchBERT": "match_bert",
    "HAN": "han",
    "SMASH": "han",
    "FirstP": "passages",
    "MaxP": "passages",
    "SumP": "passages",
    "AvgP": "passages",
    "KMaxP": "passages",
    "PARADE": "passages",
    "IDCM": "idcm",
    "LongCE": "sparse",
    "Longformer": "sparse",
    "QDSTransformer": "sparse",
    "BigBird": "sparse",
    "Passager": "passager",
    "PassageAggregator": "passager",
    "Vectors": "text.vectors",
    "LongDocModel": "artifact",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    from pyterrier_longdoc.artifact import LongDocModel as LongDocModel
    from pyterrier_longdoc.colde import CoLDE as CoLDE
    from pyterrier_longdoc.dual_encoder import DualEncoder as DualEncoder
    from pyterrier_longdoc.han import HAN as HAN
    from pyterrier_longdoc.han import SMASH as SMASH
    from pyterrier_longdoc.idcm import IDCM as IDCM
    from pyterrier_longdoc.kernels import KNRM as KNRM
    from pyterrier_longdoc.kernels import TK as TK
    from pyterrier_longdoc.kernels import ConvKNRM as ConvKNRM
    from pyterrier_longdoc.match_bert import MatchBERT as MatchBERT
    from pyterrier_longdoc.passager import PassageAggregator as PassageAggregator
    from pyterrier_longdoc.passager import Passager as Passager
    from pyterrier_longdoc.passages import PARADE as PARADE
    from pyterrier_longdoc.passages import AvgP as AvgP
    from pyterrier_longdoc.passages import FirstP as FirstP
    from pyterrier_longdoc.passages import KMaxP as KMaxP
    from pyterrier_longdoc.passages import MaxP as MaxP
    from pyterrier_longdoc.passages import SumP as SumP
    from pyterrier_longdoc.reranker import ReRanker as ReRanker
    from pyterrier_longdoc.smith import SMITH as SMITH
    from pyterrier_longdoc.socialformer import Socialformer as Socialformer
    from pyterrier_longdoc.sparse import BigBird as BigBird
    from pyterrier_longdoc.sparse import LongCE as LongCE
    from pyterrier_longdoc.sparse import Longformer as Longformer
    from pyterrier_longdoc.sparse import QDSTransformer as QDSTransformer
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
