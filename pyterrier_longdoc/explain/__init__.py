"""Which parts of the documents made the scores, as frames and as pages: one form for all rankers."""

from pyterrier_longdoc.explain.explanation import (
    LEVEL_COLUMNS,
    LEVELS,
    Explanation,
    WeightedWindow,
    explain,
    stretches_of,
)

__all__ = ["LEVELS", "LEVEL_COLUMNS", "Explanation", "WeightedWindow", "explain", "stretches_of"]
