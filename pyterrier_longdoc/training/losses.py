"""Losses over groups of one relevant document and its sampled negatives, and over batches of matching documents.

A ranking loss takes the scores of such groups, ``[examples, 1 + negatives]`` with the positive first, and the scores
that a teacher gave to the same pairs (or ``None``), and returns the mean over the examples. Any function of that form
can be given in place of a name. A contrastive loss takes vectors, and which of them match.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
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


def supervised_contrastive_loss(
    features: Tensor,
    labels: Tensor | None = None,
    mask: Tensor | None = None,
    temperature: float = 0.5,
    base_temperature: float | None = None,
    contrast_mode: str = "all",
) -> Tensor:
    """Supervised contrastive loss of several views of each document (Khosla et al., NeurIPS 2020, L_out; CoLDE, 3.3).

    Args:
        features: Unit vectors of the views, ``[N, views, D]``.
        labels: Classes, ``[N]``: documents of the same class match. Without labels and mask, only the views of a
            document match each other.
        mask: Which documents match, ``[N, N]``: 1 if they do, 0 if not, -1 for neither, which is left out.
        temperature: What similarities are divided by (τ).
        base_temperature: The loss is multiplied by ``temperature / base_temperature``; by 1 if ``None``.
        contrast_mode: ``"all"``: every view is an anchor; ``"one"``: the first one of each document.

    Returns:
        Mean over the anchors that match anything, a scalar.

    Raises:
        ValueError: If shapes do not fit, labels and mask are both given, or an option is out of range.
    """
    if features.ndim != 3:
        raise ValueError(f"features must be [N, views, D], got {list(features.shape)}")
    if labels is not None and mask is not None:
        raise ValueError("give either labels or a mask, not both")
    if contrast_mode not in ("all", "one"):
        raise ValueError(f"contrast_mode must be 'all' or 'one', got {contrast_mode!r}")
    count, views, _ = features.shape
    if labels is not None:
        labels = torch.as_tensor(labels, device=features.device).view(-1)
        _fits("labels", labels, (count,))
        mask = labels[:, None] == labels
    elif mask is None:
        mask = torch.eye(count, device=features.device)
    _fits("mask", mask, (count, count))
    document = torch.arange(count, device=features.device).repeat(views)
    anchors = count * views if contrast_mode == "all" else count
    return contrastive_loss(
        features.transpose(0, 1).flatten(0, 1), mask[document][:, document], temperature, base_temperature, anchors
    )


def contrastive_loss(
    vectors: Tensor,
    relation: Tensor,
    temperature: float = 0.5,
    base_temperature: float | None = None,
    anchors: int | None = None,
) -> Tensor:
    """Supervised contrastive loss of vectors of which each may match any other: see above.

    The mean over anchors i of -1/|P(i)| Σ_{p in P(i)} ln(exp(z_i·z_p/τ) / Σ_{a in P(i) or N(i)} exp(z_i·z_a/τ)).

    Args:
        vectors: Unit vectors, ``[v, D]``.
        relation: 1 where two vectors match (P), 0 where they do not (N), -1 where neither holds, ``[v, v]``; no vector
            is compared with itself.
        temperature: As in :func:`supervised_contrastive_loss`.
        base_temperature: As in :func:`supervised_contrastive_loss`.
        anchors: Only the first so many vectors are anchors; all if ``None``.

    Returns:
        A scalar, 0 where nothing matches.

    Raises:
        ValueError: If a temperature is not positive.
    """
    for name, value in (("temperature", temperature), ("base_temperature", base_temperature)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be over 0, got {value!r}")
    others = ~torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)[:anchors]
    relation = relation[:anchors].to(vectors.device)
    positive, compared = others & (relation > 0), others & (relation >= 0)
    used = positive.any(1)
    positive, compared = positive[used], compared[used]
    logits = vectors[:anchors].float()[used] @ vectors.float().T / temperature
    of_all = logits.masked_fill(~compared, -torch.inf).logsumexp(1, keepdim=True)
    gains = torch.where(positive, logits - of_all, 0.0).sum(1) / positive.sum(1)
    scale = 1.0 if base_temperature is None else temperature / base_temperature
    return -scale * gains.sum() / max(1, len(gains))


#: Name -> loss, and how many negatives each positive gets unless the user says otherwise.
LOSSES: dict[str, Loss] = {"hinge": hinge, "ranknet": ranknet, "listwise": listwise, "margin_mse": margin_mse}
DEFAULT_NEGATIVES = {"listwise": 7}


def _leads(scores: Tensor) -> Tensor:
    return scores[:, :1] - scores[:, 1:]


def _fits(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must be {list(shape)} to fit the features, got {list(tensor.shape)}")
