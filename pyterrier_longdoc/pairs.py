"""Pairs of documents: what matches what, learned and measured.

A frame of pairs has one row a pair: ``text_a`` (the source document), ``text_b`` (the candidate) and ``label`` (more
than 0: they match), beside ``id_a`` and ``id_b``. Seen as results, sources are queries and candidates documents, so any
ranker and any first stage can score pairs, and ranking measures apply beside those of classification: see
:mod:`pyterrier_longdoc.evaluation.pair_measures`, whose functions are found here too. Loaders are in
:mod:`pyterrier_longdoc.data.pairs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.evaluation.pair_measures import auc as auc
from pyterrier_longdoc.evaluation.pair_measures import best_threshold as best_threshold
from pyterrier_longdoc.evaluation.pair_measures import classification as classification
from pyterrier_longdoc.evaluation.pair_measures import evaluate_pairs as evaluate_pairs
from pyterrier_longdoc.evaluation.pair_measures import labels_and_scores, measured
from pyterrier_longdoc.evaluation.pair_measures import paired_bootstrap as paired_bootstrap

if TYPE_CHECKING:
    from pyterrier_longdoc.dual_encoder import DualEncoder

COLUMNS = ("id_a", "text_a", "id_b", "text_b", "label")


def as_pairs(
    pairs: pd.DataFrame, documents: pd.DataFrame | Mapping[str, str] | None = None, *, text_field: str = "text"
) -> pd.DataFrame:
    """Brings pairs into the form that all functions here take.

    Args:
        pairs: ``label``, with ``text_a`` and ``text_b``, or ``id_a`` and ``id_b`` of ``documents``, or both.
        documents: Texts of the ids: docno -> text, or a frame with ``docno`` and ``text_field``.
        text_field: See ``documents``.

    Returns:
        A frame with ``id_a, text_a, id_b, text_b, label``, in the order of the input, and its further columns. Where
        ids are missing, equal texts get equal ones.

    Raises:
        ValueError: If a column, a label, an id or the text of one is missing, a label is no number, or one id has two
            texts on the same side.
        TypeError: If a text is no string, or the pairs are no frame.
    """
    if not isinstance(pairs, pd.DataFrame):
        raise TypeError(f"pairs must be a frame, got {type(pairs).__name__}")
    out = pairs.reset_index(drop=True)
    if "label" not in out:
        raise ValueError(f"pairs need a column 'label'; found {list(pairs.columns)}")
    if len(out) and (not pd.api.types.is_numeric_dtype(out["label"]) or out["label"].isna().any()):
        raise ValueError("column 'label' of the pairs must hold a number in every row")
    texts = _texts(documents, text_field)
    for side in "ab":
        text, name = f"text_{side}", f"id_{side}"
        if text not in out:
            if name not in out or texts is None:
                raise ValueError(f"pairs need a column {text!r}, or {name!r} and documents= with its texts")
            unknown = ~out[name].isin(texts.index)
            if unknown.any():
                missing = out.loc[unknown, name]
                raise ValueError(f"{len(missing)} of {name!r} have no text in documents (first {missing.iloc[0]!r})")
            out[text] = texts.reindex(out[name]).to_numpy()
        wrong = ~out[text].map(lambda value: isinstance(value, str)).to_numpy(bool)
        if wrong.any():
            value = out[text].iloc[int(wrong.argmax())]
            raise TypeError(f"column {text!r} of the pairs holds {type(value).__name__} {value!r}, not text")
        if name not in out:
            out[name] = out[text].map(_text_id)
        _check_ids(out, name, text)
    return out[[*COLUMNS, *(name for name in out if name not in COLUMNS)]]


def _check_ids(pairs: pd.DataFrame, name: str, text: str) -> None:
    if pairs[name].isna().any():
        raise ValueError(f"{int(pairs[name].isna().sum())} of {len(pairs)} pairs have no {name!r}; fill or drop it")
    texts = pairs[[name, text]].drop_duplicates()
    twice = texts[name].duplicated()
    if twice.any():
        raise ValueError(
            f"{name}={texts.loc[twice, name].iloc[0]!r} stands beside different texts in {text!r}: an id is of one "
            f"document; drop {name!r} and it follows from the text"
        )


def as_results(pairs: pd.DataFrame, text_field: str = "text") -> pd.DataFrame:
    """Pairs as PyTerrier results: sources as ``qid, query``, candidates as ``docno`` and ``text_field``; and ``label``.

    Further columns are kept, but for those that these take the place of.

    Args:
        pairs: As :func:`as_pairs` takes them, without ``documents``.
        text_field: Column that gets the candidates' texts.
    """
    names = {"id_a": "qid", "text_a": "query", "id_b": "docno", "text_b": text_field}
    out = as_pairs(pairs).drop(columns=list(names.values()), errors="ignore")
    return out.rename(columns=names).astype({"qid": str, "docno": str})


def score_pairs(ranker: pt.Transformer, pairs: pd.DataFrame) -> pd.DataFrame:
    """Adds a column ``score`` to pairs.

    Args:
        ranker: Any transformer that re-ranks results and keeps all rows, such as every ranker of this package.
        pairs: As :func:`as_pairs` takes them.

    Raises:
        ValueError: If the transformer drops rows.
    """
    pairs = as_pairs(pairs)
    results = as_results(pairs, getattr(ranker, "text_field", "text"))
    scored = ranker(results.drop(columns="label").assign(pair=np.arange(len(results))))
    if sorted(scored["pair"]) != list(range(len(pairs))):
        raise ValueError(f"{ranker} returned {len(scored)} of {len(pairs)} pairs; it must keep all rows")
    return pairs.assign(score=scored.set_index("pair")["score"].reindex(range(len(pairs))).to_numpy())


def hard_negatives(encoder: DualEncoder, pairs: pd.DataFrame, *, count: int = 1, skip: int = 0) -> pd.DataFrame:
    """Adds to each source the candidates of others that an encoder takes for its matches.

    Args:
        encoder: A dual encoder.
        pairs: As :func:`as_pairs` takes them; pairs that are there already are never added, nor is a source to itself,
            nor a document that matches it as a source.
        count: Candidates for each source that has a match.
        skip: The nearest ones, which are left out: they may be matches that nobody labelled.

    Returns:
        The pairs, and new ones with label 0.
    """
    check_whole("count", count)
    check_whole("skip", skip, 0)
    pairs = as_pairs(pairs)
    sources = pairs[pairs["label"] > 0].drop_duplicates("id_a")
    candidates = pairs.drop_duplicates("text_b")
    texts = candidates["text_b"].to_numpy()
    sides, vectors = encoder.encode_queries(sources["text_a"]), encoder.encode_docs(texts)
    known = pairs.groupby("text_a")["text_b"].agg(set)
    reverse = pairs[pairs["label"] > 0].groupby("text_b")["text_a"].agg(set)
    rows = []
    for source, (side, text) in enumerate(zip(sides, sources["text_a"], strict=True)):
        taken = known[text] | reverse.get(text, set()) | {text}
        near = _nearest(vectors @ side, skip + count + len(taken))
        free = [place for place in near if texts[place] not in taken]
        rows += [(source, place) for place in free[skip : skip + count]]
    source, place = np.array(rows, np.int64).reshape(-1, 2).T
    first, second = (
        frame.iloc[rows].reset_index(drop=True) for frame, rows in ((sources, source), (candidates, place))
    )
    added = pd.concat([first[["id_a", "text_a"]], second[["id_b", "text_b"]]], axis=1).assign(label=0)
    return pd.concat([pairs, added], ignore_index=True)


def _nearest(similarity: np.ndarray, count: int) -> np.ndarray:
    """Places of the ``count`` highest values, and of those that are as high as the last; highest first."""
    least = -np.partition(-similarity, count - 1)[count - 1] if count < len(similarity) else -np.inf
    places = np.flatnonzero(similarity >= least)
    return places[np.argsort(-similarity[places], kind="stable")]


def fit_pairs(
    ranker: DualEncoder,
    pairs: pd.DataFrame,
    validation: pd.DataFrame | None = None,
    *,
    output_dir: str | Path | None = None,
    save_every: int | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
    **settings: Any,  # noqa: ANN401
) -> DualEncoder:
    """Trains a dual encoder on pairs of documents.

    Args:
        ranker: The encoder; it is changed.
        pairs: Training pairs, as :func:`as_pairs` takes them.
        validation: Pairs to validate on: the weights that did best on them are kept.
        output_dir: As in :func:`pyterrier_longdoc.training.fit`, as are ``save_every``, ``resume`` and ``verbose``.
        save_every: See ``output_dir``.
        resume: See ``output_dir``.
        verbose: See ``output_dir``.
        **settings: See :class:`~pyterrier_longdoc.training.pair_examples.PairSettings`; what is left out is as
            ``ranker.fit_defaults`` says.

    Returns:
        The encoder.

    Raises:
        ValueError: If there is nothing to learn from, or a frame, a setting or the checkpoint is unfit.
        TypeError: If there is no such setting.
    """
    from pyterrier_longdoc.training.fitting import train
    from pyterrier_longdoc.training.pair_examples import PairExamples, PairSettings

    ranking = ("loss", "negatives", "measure")
    defaults = {name: value for name, value in ranker.fit_defaults.items() if name not in ranking}
    chosen = PairSettings.of(**{**defaults, **settings})
    task = PairExamples.of(ranker, as_pairs(pairs), chosen)
    measured = None if validation is None else PairValidation(ranker, validation, chosen.measures)
    return train(ranker, task, measured, output_dir=output_dir, save_every=save_every, resume=resume, verbose=verbose)


class PairValidation:
    """Measures over pairs while a ranker is trained; accuracy and F1 at their best threshold there.

    Args:
        ranker: The ranker.
        pairs: As :func:`as_pairs` takes them.
        measures: ``"AUC"``, ``"accuracy"`` and ``"F1"``, the deciding one first.

    Raises:
        ValueError: If only one label occurs.
    """

    def __init__(self, ranker: DualEncoder, pairs: pd.DataFrame, measures: Sequence[str]) -> None:
        self._ranker, self._pairs, self._measures = ranker, as_pairs(pairs), measures
        labels_and_scores(self._pairs.assign(score=0.0))

    def fingerprint(self) -> str:
        """A hash of the pairs."""
        hashes = pd.util.hash_pandas_object(self._pairs[list(COLUMNS)], index=False).to_numpy()
        return blake2b(hashes.data, digest_size=8).hexdigest()

    def __call__(self) -> dict[str, float]:
        """Name and value of each measure with the weights as they are now."""
        labels, scores = labels_and_scores(score_pairs(self._ranker, self._pairs))
        return {
            name: measured(name, labels, scores, 0.0 if name == "AUC" else best_threshold(labels, scores, name))
            for name in self._measures
        }


def _texts(documents: pd.DataFrame | Mapping[str, str] | None, text_field: str) -> pd.Series | None:
    if documents is None:
        return None
    if not isinstance(documents, pd.DataFrame):
        return pd.Series(dict(documents), dtype=object)
    for column in ("docno", text_field):
        if column not in documents:
            raise ValueError(f"documents need a column {column!r}; found {list(documents.columns)}")
    return documents.drop_duplicates("docno").set_index("docno")[text_field]


def _text_id(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
