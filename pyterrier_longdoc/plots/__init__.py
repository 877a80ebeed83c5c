"""Pictures: of what rankers see in documents, of how they do over runs, and of Socialformer's graphs.

All return matplotlib axes, or a figure of several, and show nothing themselves; notebooks do at the end of a cell. They
need matplotlib, the extra ``plot``; the numbers behind them, in :mod:`pyterrier_longdoc.evaluation`, do not.
"""

from pyterrier_longdoc.plots.documents import plot_comparison, plot_region_positions, plot_topography
from pyterrier_longdoc.plots.runs import plot_by_position, plot_cost, plot_length_bias, plot_length_limits

__all__ = [
    "plot_by_position",
    "plot_comparison",
    "plot_cost",
    "plot_length_bias",
    "plot_length_limits",
    "plot_region_positions",
    "plot_topography",
]
