"""Losses over groups of one relevant document and its sampled negatives.

A ranking loss takes the scores of such groups, ``[examples, 1 + negatives]`` with the positive first, and the scores
that a teacher gave to the same pairs (or ``None``), and returns the mean over the examples. Any function of that form
can be given in place of a name.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

#: Maps scores and teacher scores, both ``[examples, 1 + negatives]``, to the mean loss of the examples.
Loss = Callable[[Tensor, Tensor | None], Tensor]


def hinge(scores: Tensor, teacher: Tensor | None = None, margin: float = 1.0) -> Tensor:
    """Pairwise margin loss: mean of max(0, margin - s⁺ + s⁻), as in the paper of KNRM and the published code of TKL.

    Args:
        scores: ``[examples, 1 + negatives]``, positive first.
        teacher: Not used.
        margin: The lead of the positive from which a pair costs nothing.

    Returns:
        Mean over examples and negatives, a scalar.
    """
    return functional.relu(margin - _leads(scores)).mean()


def ranknet(scores: Tensor, teacher: Tensor | None = None) -> Tensor:
    """RankNet: mean of ln(1 + exp(s⁻ - s⁺)), the cross entropy of a pair's order (Burges et al., ICML 2005).

    Args:
        scores: ``[examples, 1 + negatives]``, positive first.
        teacher: Not used.

    Returns:
        Mean over examples and negatives, a scalar.
    """
    return functional.softplus(-_leads(scores)).mean()


def listwise(scores: Tensor, teacher: Tensor | None = None) -> Tensor:
    """Localised contrastive estimation: mean of -ln softmax(s)⁺ over each group (Gao et al., ECIR 2021).

    Args:
        scores: ``[examples, 1 + negatives]``, positive first.
        teacher: Not used.

    Returns:
        Mean over examples, a scalar.
    """
    return -scores.log_softmax(dim=1)[:, 0].mean()


def margin_mse(scores: Tensor, teacher: Tensor | None) -> Tensor:
    """Margin-MSE: mean of ((s⁺ - s⁻) - (t⁺ - t⁻))², distilling a teacher's margins (Hofstätter et al., 2020).

    Args:
        scores: ``[examples, 1 + negatives]``, positive first.
        teacher: The teacher's scores of the same pairs, of the same shape.

    Returns:
        Mean over examples and negatives, a scalar.

    Raises:
        ValueError: If there are no teacher scores.
    """
    if teacher is None:
        raise ValueError("margin_mse needs the scores of a teacher")
    return (_leads(scores) - _leads(teacher)).square().mean()


#: Name -> loss, and how many negatives each positive gets unless the user says otherwise.
LOSSES: dict[str, Loss] = {"hinge": hinge, "ranknet": ranknet, "listwise": listwise, "margin_mse": margin_mse}
DEFAULT_NEGATIVES = {"listwise": 7}


def _leads(scores: Tensor) -> Tensor:
    return scores[:, :1] - scores[:, 1:]
