"""Trains a ranker on a TREC run and the judgements of its data set.

The ranker is saved to ``OUT``; until then, and for ``--resume``, the checkpoints are in ``OUT.training``. Started by
``accelerate launch -m pyterrier_longdoc train ...`` it trains in several processes.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import pyterrier_longdoc
from pyterrier_longdoc.cli.runs import positive, read_run, with_queries
from pyterrier_longdoc.data.fields import Dataset, as_dataset, corpus_texts, text_loader

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker
    from pyterrier_longdoc.text.vectors import Vectors

#: Settings of the training: type, and help. Their defaults are those of :class:`pyterrier_longdoc.training.Settings`.
_SETTINGS = {
    "loss": (str, "hinge, ranknet or listwise"),
    "negatives": (positive, "documents that a relevant one is compared with"),
    "epochs": (positive, "passes over the examples"),
    "max_steps": (positive, "end training earlier"),
    "batch_size": (positive, "examples of a step"),
    "accumulate": (positive, "parts of a step, computed one after the other to save memory"),
    "lr": (float, "learning rate"),
    "representation_lr": (float, "learning rate of vectors and contextualiser"),
    "precision": (str, "float32, or bfloat16 for the encoder"),
    "train_doc_tokens": (positive, "tokens of a document that are read in training"),
    "measure": (str, "measure that validation goes by, such as nDCG@10"),
    "validate_every": (positive, "steps from one validation to the next"),
    "patience": (positive, "validations without a new best after which training stops"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--dataset", required=True, help="topics, judgements and texts, such as irds:msmarco-document/train")
    add("--run", required=True, dest="run_file", metavar="RUN", type=Path, help="TREC run of the training topics")
    add("--out", required=True, type=Path, help="directory for the trained ranker")
    add("--topics-variant", help="topics of the data set, and judgements where they go by the same name")
    add("--valid-run", type=Path, help="TREC run of other topics to validate on")
    add("--valid-dataset", help="their data set; by default --dataset")
    add("--valid-topics-variant", help="their variant")
    add("--fields", nargs="+", metavar="FIELD", help="fields that make a document's text, in order")
    add("--depth", type=positive, default=100, help="documents per query to draw from, and to rank in validation (100)")
    add("--queries", type=positive, help="train on so many queries of the run, chosen by --seed")
    add("--model-class", default="TKL", metavar="RANKER", help="the ranker, such as MaxP or Socialformer (TKL)")
    add("--vectors", help="token vectors: an encoder's directory or hub name, or a GloVe or word2vec text file")
    add("--encoder", help="directory or hub name of the encoder, for rankers that are built on one")
    add("--option", action="append", default=[], metavar="NAME=VALUE", type=option, help="any other argument of the "
        "ranker, such as passage_tokens=200; may be given several times")
    add("--whole-collection", action="store_true", help="take vocabulary and IDF from all documents, not the run's")
    add("--max-doc-tokens", type=positive, help="tokens of a document that are read; by default the ranker's own")
    add("--device", nargs="+", help="such as cpu or cuda:0")
    add("--seed", type=int, default=0, help="of everything random (0)")
    add("--resume", action="store_true", help="go on with what was begun, if anything")
    for name, (kind, text) in _SETTINGS.items():
        add(f"--{name.replace('_', '-')}", type=kind, help=text)


def run(args: argparse.Namespace) -> None:
    """Trains; see the module."""
    checkpoints = args.out.with_name(args.out.name + ".training")
    if not args.resume and (there := [path for path in (checkpoints, args.out) if path.exists()]):
        raise ValueError(f"{there[0]} exists: give --resume, or another --out")
    results, qrels = _data(args, args.dataset, args.run_file, args.topics_variant)
    results = _sample(results, args.queries, args.seed)
    validation = (None, None)
    if args.valid_run is not None:
        validation = _data(args, args.valid_dataset or args.dataset, args.valid_run, args.valid_topics_variant)
    ranker = _build(args, results)
    settings = {name: getattr(args, name) for name in _SETTINGS if getattr(args, name) is not None}
    begun = any(checkpoints.glob("**/last"))  # also where a kill left it in the middle of a replacement
    place = {"resume" if begun else "output_dir": checkpoints}
    ranker.fit(results, qrels, *validation, seed=args.seed, **settings, **place)
    if os.environ.get("RANK", "0") == "0":
        ranker.save(args.out)
        print(ranker.history.to_string(index=False))


def _data(
    args: argparse.Namespace, dataset: Dataset, run_file: Path, variant: str | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    results = with_queries(read_run(run_file, args.depth), dataset, variant)
    return text_loader(dataset, args.fields)(results), _qrels(dataset, variant)


def _qrels(dataset: Dataset, variant: str | None) -> pd.DataFrame:
    """The judgements. In ir_datasets a variant is a part of a topic, elsewhere topics with judgements of their own."""
    source = as_dataset(dataset)
    variants = source._describe_component("qrels")
    return source.get_qrels(variant if isinstance(variants, list) and variant in variants else None)


def _sample(results: pd.DataFrame, queries: int | None, seed: int) -> pd.DataFrame:
    qids = results["qid"].unique()
    if queries is None or queries >= len(qids):
        return results
    chosen = np.random.default_rng(seed).choice(np.arange(len(qids)), queries, replace=False)
    return results[results["qid"].isin(qids[chosen])].reset_index(drop=True)


def _build(args: argparse.Namespace, results: pd.DataFrame) -> ReRanker:
    ranker_class = _ranker_class(args.model_class)
    options = {"device": args.device, **dict(args.option)}
    if _takes(ranker_class, "seed"):
        options["seed"] = args.seed
    if args.max_doc_tokens is not None:
        options["max_doc_tokens"] = args.max_doc_tokens
    if args.vectors is not None:
        texts = _collection(args) if args.whole_collection else results["text"].dropna().unique()
        options["vectors"] = _vectors(args.vectors, texts)
    if args.encoder is not None:
        options["encoder"] = args.encoder
    for name in ("vectors", "encoder"):
        if name in options and not _takes(ranker_class, name):
            raise ValueError(f"{args.model_class} is not built on {name}: leave out --{name}")
    if args.whole_collection and args.model_class == "TKL":  # otherwise fit takes the IDF of the training documents
        options["corpus"] = _collection(args)
    return ranker_class(**options)


def option(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` for argparse; a value that is no JSON is a string."""
    name, found, value = text.partition("=")
    if not (found and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"must have the form NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _ranker_class(name: str) -> type[ReRanker]:
    from pyterrier_longdoc.reranker import ReRanker

    classes = {each: getattr(pyterrier_longdoc, each) for each in pyterrier_longdoc.__all__}
    rankers = {
        each: value for each, value in classes.items()
        if isinstance(value, type) and issubclass(value, ReRanker) and hasattr(value, "model_class")
    }
    if name not in rankers:
        raise ValueError(f"there is no ranker {name!r}; there are {', '.join(rankers)}")
    return rankers[name]


def _takes(ranker_class: type[ReRanker], name: str) -> bool:
    """Whether the ranker, or a class that it hands its arguments on to, has an argument of this name."""
    makers = [each.__init__ for each in ranker_class.__mro__ if "__init__" in vars(each)]
    return any(name in inspect.signature(maker).parameters for maker in makers)


def _collection(args: argparse.Namespace) -> Iterator[str]:
    return corpus_texts(args.dataset, args.fields, verbose=True)


def _vectors(name: str, texts: Iterable[str]) -> Vectors:
    from pyterrier_longdoc.text.vectors import Vectors

    return Vectors.from_text_file(name, texts) if Path(name).is_file() else Vectors.from_encoder(name)
