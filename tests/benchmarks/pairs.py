"""CoLDE, trained on pairs of documents, against zero-shot MiniLM; and what shuffled sections do to both.

``python -m tests.benchmarks.pairs DIRECTORY [--tokens 512] [--steps 12] [--lstm] [--limit PAIRS]``. The directory holds
``docs.jsonl.gz`` (docno, text), ``pairs.train.tsv`` and ``pairs.dev.tsv`` (``id TAB id TAB label``). A tenth of the
sources of the training pairs is kept for validation, where thresholds are chosen; the pairs of ``dev`` are the test
set. Without ``--lstm`` this is CoLDE-LSTM, whose projection starts as the identity, so at the mean of MiniLM's chunks.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pyterrier_longdoc import CoLDE, MatchBERT
from pyterrier_longdoc.data.pairs import read_id_pairs
from pyterrier_longdoc.evaluation.robustness import shuffled_sections
from pyterrier_longdoc.pairs import evaluate_pairs, paired_bootstrap, score_pairs


def load(directory, limit):
    """Training, validation and test pairs; no source is in both of the first two."""
    documents = pd.read_json(directory / "docs.jsonl.gz", lines=True)
    train, test = (read_id_pairs(directory / f"pairs.{part}.tsv", documents) for part in ("train", "dev"))
    sources = np.random.default_rng(0).permutation(train["id_a"].unique())
    held = train["id_a"].isin(sources[: len(sources) // 10])
    return [part.head(limit or len(part)).reset_index(drop=True) for part in (train[~held], train[held], test)]


def colde(tokens, lstm):
    """CoLDE with MiniLM; without LSTM and training its vectors are the means of the chunks' vectors."""
    options = {} if lstm else {"lstm": False, "dims": 384}
    ranker = CoLDE(pooling="mean", chunk_tokens=128, max_tokens=tokens, verbose=True, **options)
    if not lstm:
        with torch.no_grad():
            ranker.model.projection.weight.copy_(torch.eye(384))
            ranker.model.projection.bias.zero_()
        ranker.weights_changed()
    return ranker


def differences(scored, name):
    """How sure the differences to the other rankers are."""
    rows = []
    for other in scored:
        for measure in ("AUC", "accuracy") if other != name else ():
            (test, valid), (own_test, own_valid) = scored[other], scored[name]
            found = paired_bootstrap(test, own_test, (valid, own_valid), measure=measure)
            rows.append({"against": other, "measure": measure, **found})
    return pd.DataFrame(rows)


def show(title, table):
    """Prints a table below its title."""
    print(f"\n{title}\n{table.to_string()}", flush=True)


def main():
    """Trains, measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lstm", action="store_true")
    parser.add_argument("--limit", type=int)
    args = parser.parse_args()
    train, valid, test = load(args.directory, args.limit)
    known = {*train["id_a"], *train["id_b"]}
    share = np.mean([docno in known for docno in [*test["id_a"], *test["id_b"]]])
    print(f"{len(train)} training, {len(valid)} validation, {len(test)} test pairs; "
          f"{share:.0%} of the test documents occur in training pairs")
    trained = colde(args.tokens, args.lstm)
    trained.fit_pairs(
        train, valid, batch_size=50, max_steps=args.steps, lr=1e-3, representation_lr=2e-5, temperature=0.5,
        schedule="linear", clip_norm=1.0,
    )
    rankers = {
        "MiniLM, head": MatchBERT(pooling="mean"), "MiniLM, mean of chunks": colde(args.tokens, False), "CoLDE": trained
    }
    scored = {name: (score_pairs(each, test), score_pairs(each, valid)) for name, each in rankers.items()}
    show("Test pairs", pd.DataFrame({name: evaluate_pairs(*each, measures=()) for name, each in scored.items()}).T)
    show("CoLDE: differences and their 95 % intervals", differences(scored, "CoLDE"))
    for name in ("CoLDE", "MiniLM, head"):
        table = shuffled_sections(rankers[name], test, valid)
        show(f"{name}: sections of both documents shuffled", table.set_index("shuffled").T)


if __name__ == "__main__":
    main()
