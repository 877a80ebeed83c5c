"""Training rankers on the results of a first stage.

Scores of a relevant document and of sampled others are compared by a loss; the ranker's model is the only thing that
differs between rankers. Nothing that only ranks imports this package.
"""

from pyterrier_longdoc.training.fitting import fit
from pyterrier_longdoc.training.settings import Settings

__all__ = ["Settings", "fit"]
