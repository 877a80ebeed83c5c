"""How firm a matcher of long documents is: shuffled sections, lengths and numbers of sections (CoLDE, 4.4 and 4.5).

All functions work on pairs of documents (:mod:`pyterrier_longdoc.pairs`) and return frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.evaluation.pair_measures import evaluate_pairs, paired_bootstrap
from pyterrier_longdoc.pairs import as_pairs, score_pairs
from pyterrier_longdoc.text.sections import shuffled_order, split_sections

if TYPE_CHECKING:
    from pyterrier_longdoc.dual_encoder import DualEncoder

#: What is reported of a matcher.
_MEASURES = ("accuracy", "precision", "recall", "F1", "AUC")


def shuffle_texts(texts: Iterable[str], sections: int = 2, seed: int = 0) -> list[str]:
    """Texts with their sections in another order; nothing is lost or added but blank lines.

    Args:
        texts: The texts.
        sections: Sections of a text, 1 to 5; see :func:`pyterrier_longdoc.text.sections.split_sections`.
        seed: With a text it decides on the order, which is never that of before.

    Raises:
        ValueError: If ``sections`` is out of range.
    """
    shuffled = []
    for text in texts:
        parts = split_sections(text, sections)
        order = shuffled_order(len(parts), seed, text.encode("utf-8", "replace"))
        shuffled.append(text if len(parts) < 2 else "\n\n".join(parts[place].strip("\n") for place in order))
    return shuffled


def shuffled_sections(
    ranker: pt.Transformer,
    pairs: pd.DataFrame,
    validation: pd.DataFrame,
    *,
    sections: int = 2,
    seed: int = 0,
    samples: int = 1_000,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """What shuffling the sections of both documents does to scores and accuracy (Figure 8).

    Args:
        ranker: Any ranker of pairs.
        pairs: The pairs.
        validation: Pairs, not shuffled, on which the threshold of a match is chosen.
        sections: Sections of a document.
        seed: Of the orders and of the bootstrap.
        samples: Samples of pairs in the bootstrap.
        confidence: Share of the samples within the intervals.

    Returns:
        One row for ``"text"``, where the shuffled texts are read anew; and, for rankers that know sections
        (:class:`CoLDE <pyterrier_longdoc.CoLDE>`), one for ``"numbered"``, where sections keep their numbers. Columns:
        ``shuffled``; ``change``, the mean change of score, with its interval ``change_low, change_high``;
        ``absolute_change``, its mean size; ``accuracy`` and ``AUC`` before; and for each of them the difference that
        shuffling makes with its interval, such as ``accuracy_difference, accuracy_low, accuracy_high``.

    Raises:
        ValueError: If a frame is unfit.
    """
    pairs = as_pairs(pairs)
    moved = pairs.assign(
        **{f"text_{side}": shuffle_texts(pairs[f"text_{side}"], sections, seed) for side in "ab"}
    )
    validated, before = score_pairs(ranker, validation), score_pairs(ranker, pairs)
    runs = {"text": (validated, before, score_pairs(ranker, moved))}
    if hasattr(ranker, "with_shuffled_sections"):
        # What shuffling does to sections is told apart from what another number of them does
        own = ranker.with_sections(sections)
        if sections != ranker.model.config.sections:
            validated, before = score_pairs(own, validation), score_pairs(own, pairs)
        runs["numbered"] = (validated, before, score_pairs(own.with_shuffled_sections(seed), pairs))
    rows = []
    for name, (validated, before, after) in runs.items():
        whole = evaluate_pairs(before, validated, measures=())
        row = {"shuffled": name, **_change(before, after, seed, samples, confidence)}
        for measure in ("accuracy", "AUC"):
            found = paired_bootstrap(
                before, after, (validated, validated), measure=measure, samples=samples, confidence=confidence,
                seed=seed,
            )
            row |= {measure: whole[measure], f"{measure}_difference": found["difference"]}
            row |= {f"{measure}_{end}": found[end] for end in ("low", "high")}
        rows.append(row)
    return pd.DataFrame(rows)


def training_lengths(
    make: Callable[[], DualEncoder],
    train: pd.DataFrame,
    validation: pd.DataFrame,
    test: pd.DataFrame,
    *,
    lengths: Sequence[int] = (1_000, 4_000, 8_000),
    limit: str = "section_tokens",
    **settings: Any,  # noqa: ANN401
) -> pd.DataFrame:
    """How good a matcher becomes that reads only so much of each section in training, and all in testing (Figure 7).

    Args:
        make: Makes the untrained matcher.
        train: Pairs to train on.
        validation: Pairs on which the best weights and the threshold are chosen.
        test: Pairs to measure on.
        lengths: Tokens that are read.
        limit: The setting of ``fit_pairs`` that says so: ``"section_tokens"``, or ``"train_doc_tokens"`` for matchers
            without sections.
        **settings: Further settings of ``fit_pairs``.

    Returns:
        One row for each length: ``tokens``, accuracy, precision, recall, F1 and AUC.
    """
    rows = [
        {"tokens": length, **_trained(make(), train, validation, test, {**settings, limit: length})}
        for length in lengths
    ]
    return pd.DataFrame(rows)


def section_counts(
    make: Callable[[int], DualEncoder],
    train: pd.DataFrame,
    validation: pd.DataFrame,
    test: pd.DataFrame,
    *,
    counts: Sequence[int] = (2, 3, 4, 5),
    **settings: Any,  # noqa: ANN401
) -> pd.DataFrame:
    """How good a matcher becomes that cuts documents into so many sections, in training and testing (section 4.5.4).

    Args:
        make: Makes the untrained matcher for a number of sections.
        train: Pairs to train on.
        validation: Pairs on which the best weights and the threshold are chosen.
        test: Pairs to measure on.
        counts: Numbers of sections.
        **settings: Settings of ``fit_pairs``.

    Returns:
        One row for each number: ``sections``, accuracy, precision, recall, F1 and AUC.
    """
    rows = [{"sections": count, **_trained(make(count), train, validation, test, settings)} for count in counts]
    return pd.DataFrame(rows)


def _trained(
    ranker: DualEncoder, train: pd.DataFrame, validation: pd.DataFrame, test: pd.DataFrame, settings: dict[str, Any]
) -> dict[str, float]:
    ranker.fit_pairs(train, validation, **settings)
    values = evaluate_pairs(score_pairs(ranker, test), score_pairs(ranker, validation), measures=())
    return {name: values[name] for name in _MEASURES}


def _change(
    before: pd.DataFrame, after: pd.DataFrame, seed: int, samples: int, confidence: float
) -> dict[str, float]:
    change = (after["score"] - before["score"]).to_numpy()
    drawn = np.random.default_rng(seed).integers(len(change), size=(samples, len(change)))
    low, high = np.quantile(change[drawn].mean(axis=1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return {
        "change": float(change.mean()), "change_low": float(low), "change_high": float(high),
        "absolute_change": float(np.abs(change).mean()),
    }
