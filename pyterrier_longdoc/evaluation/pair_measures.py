"""Measures of scored pairs of documents: as classification, as ranking, and how sure a difference is.

A pair is called a match where its score is above a threshold, which has to come from other pairs than those that are
measured. The area under the ROC curve needs no threshold; ranking measures take the source of a pair as the query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ir_measures
import numpy as np
import pandas as pd

#: Measures of classification, the first without a threshold.
_MEASURES = ("AUC", "accuracy", "precision", "recall", "F1")


def evaluate_pairs(
    scored: pd.DataFrame,
    validation: pd.DataFrame | None = None,
    *,
    threshold: float | None = None,
    best: str = "accuracy",
    measures: str | Sequence[Any] = ("AP", "RR", "nDCG@10"),
) -> dict[str, float]:
    """Measures scored pairs, as classification and as ranking.

    Args:
        scored: Pairs with ``label`` and ``score`` (see :func:`~pyterrier_longdoc.pairs.score_pairs`); ranking measures
            also need ``id_a, id_b``, and count a pair that occurs twice once, as a match if one of both is.
        validation: Other scored pairs, on which the threshold is chosen.
        threshold: The threshold, in place of ``validation``: pairs that score higher are said to match.
        best: What the threshold is the best for on the validation pairs: ``"accuracy"`` or ``"F1"``.
        measures: Measures of ``ir_measures`` over the candidates of each source that has a match; none if empty.

    Returns:
        ``accuracy, precision, recall, F1, AUC, threshold``, and the measures by name.

    Raises:
        ValueError: If neither ``validation`` nor ``threshold`` is given, or both, or it is no number; if a score, a
            label or an id is missing; if only one label occurs; or if there is no such measure.
    """
    labels, scores = labels_and_scores(scored)
    if (validation is None) == (threshold is None):
        raise ValueError("give either validation pairs, on which the threshold is chosen, or a threshold")
    if validation is not None:
        threshold = best_threshold(*labels_and_scores(validation), best)
    if not isinstance(threshold, int | float | np.number) or math.isnan(threshold):
        raise ValueError(f"threshold must be a number, got {threshold!r}")
    values = {**classification(labels, scores, threshold), "AUC": auc(labels, scores), "threshold": float(threshold)}
    if len(measures):
        values |= _ranking(scored.assign(relevance=labels.astype(int)), measures)
    return values


def classification(labels: np.ndarray, scores: np.ndarray, threshold: float) -> dict[str, float]:
    """Accuracy, precision, recall and F1 of calling a pair a match where its score is above a threshold.

    Precision is 0 where nothing is called a match, as recall is where nothing matches.
    """
    called = scores > threshold
    hits = float((called & labels).sum())
    matches, positives = int(labels.sum()), int(called.sum())
    return {
        "accuracy": float((called == labels).mean()),
        "precision": hits / max(1, positives),
        "recall": hits / max(1, matches),
        "F1": 2 * hits / max(1, positives + matches),
    }


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The area under the ROC curve: how often a match scores higher than another pair, ties counting half."""
    ranks = pd.Series(scores).rank().to_numpy()
    matches = int(labels.sum())
    others = len(labels) - matches
    return float((ranks[labels].sum() - matches * (matches + 1) / 2) / (matches * others))


def best_threshold(labels: np.ndarray, scores: np.ndarray, best: str = "accuracy") -> float:
    """The threshold at which scored pairs have the best accuracy or F1; the lowest one of several.

    It lies halfway between two scores, or beside all of them.

    Raises:
        ValueError: If ``best`` is neither.
    """
    if best not in ("accuracy", "F1"):
        raise ValueError(f"best must be 'accuracy' or 'F1', got {best!r}")
    order = np.argsort(scores, kind="stable")
    scores, labels = scores[order], labels[order]
    ends = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)  # the last of equal scores
    below = np.concatenate([[0], ends + 1])  # pairs at or under each threshold, from none to all
    matches_below = np.append(0, np.cumsum(labels))[below]
    matches, count = labels.sum(), len(labels)
    hits, called = matches - matches_below, count - below
    right = hits + below - matches_below
    value = right / count if best == "accuracy" else 2 * hits / np.maximum(1, called + matches)
    place = below[int(value.argmax())]
    if place == 0:
        return float(np.nextafter(scores[0], -np.inf))
    if place == count:
        return float(scores[-1])
    below, above = scores[place - 1], scores[place]
    return float(min((below + above) / 2, np.nextafter(above, -np.inf)))  # between neighbours there is no number


def paired_bootstrap(
    first: pd.DataFrame,
    second: pd.DataFrame,
    validations: tuple[pd.DataFrame, pd.DataFrame] | None = None,
    *,
    measure: str = "AUC",
    best: str = "accuracy",
    samples: int = 1_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, float]:
    """How much better one ranker is than another on the same pairs, with a paired bootstrap interval.

    Args:
        first: Pairs scored by one ranker.
        second: The same pairs in the same order, scored by the other.
        validations: Validation pairs of each, on which its threshold is chosen; ``"AUC"`` needs none.
        measure: ``"AUC"``, ``"accuracy"``, ``"precision"``, ``"recall"`` or ``"F1"``.
        best: What the thresholds are the best for, as in :func:`evaluate_pairs`.
        samples: Samples of pairs, drawn with replacement; those without a match, or with nothing else, do not count.
        confidence: Share of the samples' differences that lie in the interval.
        seed: Of the samples.

    Returns:
        ``difference`` (second minus first), ``low`` and ``high``.

    Raises:
        ValueError: If the pairs are not the same, thresholds are missing, or a setting is out of range.
    """
    (labels, one), (_, other) = labels_and_scores(first), labels_and_scores(second)
    known = [name for name in ("label", "id_a", "id_b") if name in first and name in second]
    if not np.array_equal(first[known].to_numpy(object), second[known].to_numpy(object)):
        raise ValueError("the two frames must hold the same pairs in the same order")
    if measure not in _MEASURES:
        raise ValueError(f"measure must be one of {', '.join(map(repr, _MEASURES))}, got {measure!r}")
    if samples < 1 or not 0 < confidence < 1:
        raise ValueError(f"samples must be at least 1 and confidence in (0, 1), got {samples} and {confidence}")
    if measure != "AUC" and validations is None:
        raise ValueError(f"{measure} needs the validation pairs of both rankers, on which thresholds are chosen")
    thresholds = [best_threshold(*labels_and_scores(each), best) for each in validations or ()] or [0.0, 0.0]

    def difference(rows: np.ndarray) -> float:
        before, after = (
            measured(measure, labels[rows], scores[rows], threshold)
            for scores, threshold in zip((one, other), thresholds, strict=True)
        )
        return after - before

    random = np.random.default_rng(seed)
    drawn = (random.integers(len(labels), size=len(labels)) for _ in range(samples))
    found = [difference(rows) for rows in drawn if 0 < labels[rows].sum() < len(rows)]
    if not found:
        raise ValueError(f"none of {samples} samples of {len(labels)} pairs holds both kinds of pairs: draw more")
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return {"difference": difference(np.arange(len(labels))), "low": float(low), "high": float(high)}


def _ranking(scored: pd.DataFrame, measures: str | Sequence[Any]) -> dict[str, float]:
    """Mean of ranking measures over the sources that have a match."""
    from pyterrier_longdoc.training.settings import parse_measure

    for column in ("id_a", "id_b"):
        if column not in scored or scored[column].isna().any():
            raise ValueError(f"ranking measures need {column!r} in every row of the pairs; or use measures=()")
    table = scored.rename(columns={"id_a": "query_id", "id_b": "doc_id"}).astype({"query_id": str, "doc_id": str})
    table = table[table.groupby("query_id")["relevance"].transform("max") > 0]
    table = table.sort_values("relevance", kind="stable").drop_duplicates(["query_id", "doc_id"], keep="last")
    parsed = [parse_measure(measure) for measure in ([measures] if isinstance(measures, str) else measures)]
    found = ir_measures.calc_aggregate(parsed, table, table)
    return {str(measure): float(found[measure]) for measure in parsed}


def measured(measure: str, labels: np.ndarray, scores: np.ndarray, threshold: float) -> float:
    """One measure of scored pairs by its name; ``"AUC"`` does not look at the threshold."""
    return auc(labels, scores) if measure == "AUC" else classification(labels, scores, threshold)[measure]


def labels_and_scores(scored: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Which scored pairs match, bool ``[p]``, and their scores, float64 ``[p]``.

    Raises:
        ValueError: If one is missing or no number, or only one label occurs.
    """
    for column in ("label", "score"):
        if column not in scored:
            raise ValueError(f"scored pairs need a column {column!r}; found {list(scored.columns)}")
        numeric = pd.api.types.is_numeric_dtype(scored[column])
        if not numeric or not np.isfinite(scored[column].to_numpy(np.float64, na_value=np.nan)).all():
            raise ValueError(f"column {column!r} of the pairs must hold a finite number in every row")
    labels = scored["label"].to_numpy() > 0
    if not 0 < labels.sum() < len(labels):
        raise ValueError(f"{int(labels.sum())} of {len(labels)} pairs match (label > 0); both kinds are needed")
    return labels, scored["score"].to_numpy(np.float64)
