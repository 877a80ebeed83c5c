"""Social graphs over the tokens of a document, and friend circles in them: NumPy and Numba only, no PyTorch.

:class:`SocialWeights` says how likely two tokens know each other, :func:`sample_graph` draws who does,
:func:`friend_circles` cuts the graph into circles around its best connected tokens (Socialformer, WWW 2022). All that
is ever as large as n² is one bit a pair.
"""

from pyterrier_longdoc.graph.adjacency import Adjacency
from pyterrier_longdoc.graph.circles import friend_circles
from pyterrier_longdoc.graph.sampling import dense_probabilities, sample_graph
from pyterrier_longdoc.graph.weights import PATTERNS, SocialWeights, query_distance, tf_idf

__all__ = [
    "PATTERNS", "Adjacency", "SocialWeights", "dense_probabilities", "friend_circles", "query_distance", "sample_graph",
    "tf_idf",
]
