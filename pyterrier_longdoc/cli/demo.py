"""Re-ranks the built-in collection: BM25, TK and TKL compared in one table, with run files and a page to look at.

Everything happens on this machine, on the documentation of its own Python: index, train, compare, explain. The table is
in ``OUT/table.csv``, the runs are in ``OUT/runs``, the trained rankers in ``OUT/tk`` and ``OUT/tkl``, and
``OUT/explanation.html`` shows where TKL looked.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, nDCG

from pyterrier_longdoc.cli.runs import positive
from pyterrier_longdoc.data.fields import corpus_texts, text_loader
from pyterrier_longdoc.evaluation.combination import choose_share, combine, ndcg
from pyterrier_longdoc.first_stage import bm25

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker

#: The collection, unless another is named.
DATASET = "longdoc:python-docs"
#: Documents per query: for training and choosing weights, and for the table.
_TRAIN_DEPTH, _TEST_DEPTH = 20, 50
_MAX_DOC_TOKENS = 4_000
#: Validation during training takes a part of the questions; the share of TKL is chosen on all of them.
_VALIDATION_QUERIES = 60
#: Vectors and contextualiser stay as MiniLM has them: what a few minutes can teach is which matches count, and where.
_TRAINING = {
    "loss": "listwise",
    "negatives": 7,
    "batch_size": 16,
    "lr": 5e-3,
    "schedule": "linear",
    "representation_lr": 0.0,
    "clip_norm": 1.0,
    "train_doc_tokens": 1_500,
    "measure": "nDCG@10",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--out", type=Path, default=Path("longdoc-demo"), help="directory for everything that is made (longdoc-demo)")
    add("--model", help="a trained TKL to use, in place of training one")
    add("--steps", type=positive, default=150, help="training steps (150)")
    add("--topics", type=positive, default=1_000, help="at most so many test questions")
    add("--query", help="qid of the question that the page explains; by default the one that gains most")
    add("--device", nargs="+", help="such as cpu or cuda:0")
    add("--seed", type=int, default=0, help="of everything random (0)")


def run(args: argparse.Namespace) -> None:
    """Runs the demo; see the module."""
    begun = time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    dataset = pt.get_dataset(DATASET)
    first = bm25(dataset, args.out / "index.pisa", num_results=_TEST_DEPTH, verbose=True)
    load = text_loader(dataset)
    candidates = first % _TRAIN_DEPTH >> load
    tk, tkl = _rankers(args, dataset, candidates)
    dev = candidates(dataset.get_topics("dev"))
    share = choose_share(dev, tkl(dev), dataset.get_qrels("dev"))
    print(f"BM25 + {share:g} TKL: the smallest share within one standard error of the best on validation questions")
    table, combined = _compare(args, dataset, first >> load, tk, tkl, share)
    print(f"\n{table.to_string(index=False)}\n")
    _explain(args, tkl, combined, dataset.get_qrels("test"))
    print(f"{args.out / 'runs'}: run files; {args.out / 'explanation.html'}: where TKL looked")
    print(f"{time.perf_counter() - begun:.0f} s in all")


def _rankers(args: argparse.Namespace, dataset: pt.datasets.Dataset, candidates: pt.Transformer) -> list[ReRanker]:
    from pyterrier_longdoc import TK, TKL

    train = candidates(dataset.get_topics("train"))
    dev = candidates(dataset.get_topics("dev").head(_VALIDATION_QUERIES))
    frames = (train, dataset.get_qrels("train"), dev, dataset.get_qrels("dev"))
    common = {"device": args.device, "seed": args.seed, "layers": 1, "verbose": True}
    tk = TK(**common)
    _fit(tk, frames, args)
    if args.model:
        return [tk, TKL.from_pretrained(args.model, device=args.device, verbose=True)]
    tkl = TKL(corpus=corpus_texts(dataset), max_doc_tokens=_MAX_DOC_TOKENS, **common)
    _fit(tkl, frames, args)
    return [tk, tkl]


def _fit(ranker: ReRanker, frames: tuple[pd.DataFrame, ...], args: argparse.Namespace) -> None:
    settings: dict[str, Any] = {**_TRAINING, "max_steps": args.steps, "validate_every": max(1, args.steps // 3)}
    ranker.fit(*frames, seed=args.seed, **settings)
    ranker.save(args.out / type(ranker).__name__.lower())


def _compare(
    args: argparse.Namespace,
    dataset: pt.datasets.Dataset,
    first: pt.Transformer,
    tk: ReRanker,
    tkl: ReRanker,
    share: float,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table, and the results of the combination."""
    topics, runs = dataset.get_topics("test").head(args.topics), args.out / "runs"
    candidates = first(topics)
    scored = tkl(candidates)
    combined = combine(candidates, scored, share)
    results = {"BM25": candidates, "TK": tk(candidates), "TKL": scored, "BM25+TKL": combined}
    runs.mkdir(exist_ok=True)
    table = pt.Experiment(
        {name: pt.Transformer.from_df(res.drop(columns="text")) for name, res in results.items()},
        topics,
        dataset.get_qrels("test"),
        [nDCG @ 10, RR, AP],
        baseline="BM25",
        round=4,
        save_dir=str(runs),
        save_mode="overwrite",
    )
    table.to_csv(args.out / "table.csv", index=False)
    return table[[column for column in table if not column.endswith(("+", "-"))]], combined


def _explain(args: argparse.Namespace, tkl: ReRanker, combined: pd.DataFrame, qrels: pd.DataFrame) -> None:
    """The page of one question: by default the one that TKL helps most."""
    qid = args.query or _greatest_gain(args.out / "runs", qrels)
    chosen = combined[combined["qid"] == qid].nsmallest(5, "rank")
    if not len(chosen):
        raise ValueError(f"no test question has the qid {qid!r}")
    tkl.explain(chosen).save(args.out / "explanation.html", title=f"Where TKL looked: {chosen['query'].iloc[0]}")


def _greatest_gain(runs: Path, qrels: pd.DataFrame) -> str:
    results = [pt.io.read_results(str(runs / f"{name}.res.gz")) for name in ("BM25", "BM25+TKL")]
    before, after = (ndcg(res, qrels[qrels["qid"].isin(res["qid"])]) for res in results)
    return str((after - before).idxmax())
