"""The far-relevance probe with encoders that have learnt to match: who is at chance, and who is not.

``python -m tests.benchmarks.probe [--layers 3] [--steps 400] [--positions 0 600] [--topics 20]``. The first layers
of MiniLM learn on short texts, in some minutes on two cores, to tell the passage that the words of a query come from;
all rankers then read with the same weights, and differ only in what they read of a long document, and how. Training and
probe are made of different documents. Wanted: FirstP at chance (within .1) from 600 words on, the passage rankers far
above. The sparse Transformers are made of an encoder that has learnt on 60 tokens, untrained at their own length.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import pandas as pd
import pyterrier as pt
import torch
import transformers

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.data.fields import corpus_texts
from pyterrier_longdoc.evaluation.probe import by_position, far_relevance
from pyterrier_longdoc.text.tokens import load_tokenizer
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, encoder_path
from tests.benchmarks.measuring import show

SIZES = {"passage_words": 20, "query_words": 4}


def pieces(texts, words=200):
    """Stretches of texts, so that there are enough of them to take passages from."""
    found = []
    for text in texts:
        every = text.split()
        found += [" ".join(every[start : start + words]) for start in range(0, len(every) - words, words)]
    return found


def lessons(texts, rounds=4, topics=900):
    """Results and judgements over short texts."""
    results, qrels = [], []
    for seed in range(rounds):
        options = {"before": 5, "after": 5, "topics": min(topics, len(texts)), "candidates": 6, "seed": seed}
        probe = far_relevance(texts, **options, **SIZES)
        for frames, frame in ((results, probe.results), (qrels, probe.qrels)):
            frames.append(frame.assign(qid=frame["qid"] + f"-{seed}", docno=frame["docno"] + f"-{seed}"))
    return pd.concat(results, ignore_index=True), pd.concat(qrels, ignore_index=True)


def trained(folder, texts, layers, steps):
    """A directory with an encoder that has learnt to match, and its head."""
    source = encoder_path(DEFAULT_ENCODER)
    tokenizer = load_tokenizer(source)
    transformers.AutoModel.from_pretrained(source, num_hidden_layers=layers).save_pretrained(folder / "start")
    tokenizer.save_pretrained(folder / "start")
    ranker = longdoc.MaxP(str(folder / "start"), passage_tokens=64, overlap=32, train_passages=None)
    settings = {"loss": "listwise", "negatives": 3, "batch_size": 8, "lr": 1e-3, "representation_lr": 1e-4}
    ranker.fit(*lessons(texts), max_steps=steps, epochs=1, verbose=False, **settings)
    ranker.model.encoder.save_pretrained(folder / "trained")
    tokenizer.save_pretrained(folder / "trained")
    return str(folder / "trained"), ranker.model.head.state_dict()


def rankers_of(encoder, head):
    passages = {"passage_tokens": 64, "overlap": 24}
    rankers = {
        "FirstP": longdoc.FirstP(encoder),
        "MaxP": longdoc.MaxP(encoder, **passages),
        "MaxP, 2 passages": longdoc.MaxP(encoder, max_passages=2, **passages),
        "PARADE-Max": longdoc.PARADE(encoder, aggregation="max", **passages),
        "IDCM": longdoc.IDCM(encoder),
        "Longformer": longdoc.Longformer(encoder, attention_window=128),
        "QDSTransformer": longdoc.QDSTransformer(encoder),
    }
    for ranker in rankers.values():
        ranker.model.head.load_state_dict(head)
        ranker.weights_changed()
    return rankers


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--positions", type=int, nargs="+", default=[0, 600])
    parser.add_argument("--topics", type=int, default=20)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    texts = list(corpus_texts(pt.get_dataset("longdoc:python-docs")))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        rankers = rankers_of(*trained(Path(folder), pieces(texts[::2]), args.layers, args.steps))
        print(f"trained in {time.perf_counter() - start:.0f} s")
        options = {"topics": args.topics, "candidates": 5, "after": 50, **SIZES}
        table = by_position(rankers, pieces(texts[1::2]), args.positions, **options)
    wide = table.pivot(index="name", columns="before", values="RR").loc[["chance", *rankers]].round(3)
    title = f"mean reciprocal rank by words before the passage, {torch.get_num_threads()} threads"
    show(title, wide.rename_axis(columns=None).reset_index(names="ranker").rename(columns=str))


if __name__ == "__main__":
    main()
