"""Where the time of a re-ranking goes: tokenise, model, everything else; and how much memory many long documents take.

``python -m tests.benchmarks.rerank [--documents 64] [--tokens 2000] [--memory]``. Documents are random words of the
tokenizer's vocabulary. With ``--memory`` 1,000 documents of 10,000 tokens are re-ranked and only peaks are printed.
"""

import argparse
import time

import numpy as np
import pandas as pd
import torch

import pyterrier_longdoc as longdoc
from pyterrier_longdoc import reranker as reranker_module
from tests.benchmarks.measuring import peak_mib, show

QUERY_WORDS = 8


def texts(tokenizer, count, length, seed=0):
    words = sorted(word for word in tokenizer.get_vocab() if word.isalpha() and word.isascii())
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, length)) for _ in range(count)]


def frame(tokenizer, count, length):
    query = texts(tokenizer, 1, QUERY_WORDS, seed=1)[0]
    documents = texts(tokenizer, count, length)
    return pd.DataFrame({"qid": "1", "query": query, "docno": [f"d{i}" for i in range(count)], "text": documents})


def split(ranker, results):
    """Seconds of one call: in the tokenizer, in the model, in all."""
    spent = {"tokenise": 0.0, "model": 0.0}

    def timed(name, function):
        def call(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - start

        return call

    tokenize, score = reranker_module.tokenize, ranker._score_group
    reranker_module.tokenize, ranker._score_group = timed("tokenise", tokenize), timed("model", score)
    try:
        start = time.perf_counter()
        ranker(results)
        spent["all"] = time.perf_counter() - start
    finally:
        reranker_module.tokenize, ranker._score_group = tokenize, score
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=2_000)
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    encoder = longdoc.Vectors.from_encoder()
    vectors = longdoc.Vectors(encoder.tokenizer, np.ascontiguousarray(encoder.table[:, :300]), "first 300 columns")
    ranker = longdoc.TKL(vectors)
    if args.memory:
        before = peak_mib()
        for count in (100, 1_000):
            ranker(frame(ranker.tokenizer, count, 10_000))
            print(f"{count:>5} documents of 10,000 tokens: peak {peak_mib():.0f} MiB ({before:.0f} before)", flush=True)
        return
    results = frame(ranker.tokenizer, args.documents, args.tokens)
    ranker(results.head(8))
    spent = split(ranker, results)
    other = spent["all"] - spent["tokenise"] - spent["model"]
    parts = {**{name: spent[name] for name in ("tokenise", "model")}, "split, frame": other}
    rows = [
        {"part": part, "ms/doc": 1e3 * taken / args.documents, "share": f"{taken / spent['all']:.1%}"}
        for part, taken in parts.items()
    ]
    show(f"TKL, {args.documents} documents of {args.tokens} tokens, {torch.get_num_threads()} threads", rows)
    print(f"{args.documents / spent['all']:.1f} documents/s; peak memory {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()
