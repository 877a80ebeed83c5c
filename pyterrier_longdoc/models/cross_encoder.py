"""FirstP, MaxP, SumP, AvgP (Dai and Callan, SIGIR 2019) and k-max average: scores of passages, aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.models.passages import PassageConfig, PassageModel, new_head

#: How scores of passages ``[documents, passages]`` become scores of documents; ``k`` is the config's.
AGGREGATIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "first": lambda scores, k: scores[:, 0],
    "max": lambda scores, k: scores.amax(1),
    "sum": lambda scores, k: scores.sum(1),
    "mean": lambda scores, k: scores.mean(1),
    "kmax": lambda scores, k: scores.topk(min(k, scores.shape[1]), dim=1).values.mean(1),
}


@dataclass(frozen=True)
class CrossEncoderConfig(PassageConfig):
    """Settings of the models that aggregate scores.

    Attributes:
        aggregation: ``"first"``, ``"max"``, ``"sum"``, ``"mean"`` or ``"kmax"``: the mean of the ``k`` best.
        k: See there.
    """

    aggregation: str = "max"
    k: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(f"aggregation must be one of {', '.join(AGGREGATIONS)}, got {self.aggregation!r}")
        check_whole("k", self.k)


class CrossEncoderModel(PassageModel):
    """A score for each passage, aggregated.

    A classifier of one label scores by its logit, one of two labels by the second logit less the first: the log odds
    of "relevant". Any other encoder gets a new linear head on the vector of its first token.

    Args:
        config: The settings.
        encoder: As in :class:`PassageModel`.

    Raises:
        ValueError: If a classifier has more than two labels.
    """

    config_class = CrossEncoderConfig

    def __init__(self, config: CrossEncoderConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config, encoder)
        settings = self.encoder.config
        if not config.classifier:
            self.head = new_head(settings)
        elif settings.num_labels > 2:
            raise ValueError(
                f"a classifier of {settings.num_labels} labels has no relevance score; it needs 1 label (its logit is "
                "the score) or 2 (not relevant, relevant)"
            )

    def pick(self, output: Any, items: np.ndarray) -> Tensor:  # noqa: ANN401 (an output of transformers)
        """The score of each passage ``[b]`` from a classifier; without one, the vector of its first token."""
        if not self.config.classifier:
            return super().pick(output, items)
        logits = output.logits.float()
        return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]

    def passage_scores(self, outputs: Tensor) -> Tensor:
        """Scores ``[documents, passages]`` from what was kept of the passages."""
        return outputs if self.config.classifier else self.head(outputs).squeeze(-1)

    def aggregate(self, outputs: Tensor) -> Tensor:
        """See :meth:`PassageModel.aggregate`."""
        return AGGREGATIONS[self.config.aggregation](self.passage_scores(outputs), self.config.k)

    def passage_weights(self, outputs: Tensor) -> Tensor:
        """The score of each passage."""
        return self.passage_scores(outputs)[0]
