"""Socialformer's forward pass against the same encoder over the same groups without exchange, in one run.

``python -m tests.benchmarks.socialformer [--documents 4] [--repeats 2] [--small]``. A BERT-base with random weights
reads documents of 2,000 tokens, and of 100 to 2,000; ``--small`` takes MiniLM. Compared are: the model, the model
without exchange, the bare encoder over the same groups (MaxP), and over 32 groups of 133 tokens a document, which the
published code always computes. Ways take turns, so that noise meets all of them. Then: where the time of a re-ranking
goes, and how it grows with length.
"""

import argparse
import copy
import dataclasses
import statistics
import time

import numpy as np
import torch

from pyterrier_longdoc import Socialformer
from pyterrier_longdoc.models.encoder import build_encoder, encode_sequences, encoder_settings, load_encoder
from pyterrier_longdoc.models.first_token import read_first_token_only
from pyterrier_longdoc.models.social_settings import SocialformerConfig
from pyterrier_longdoc.models.socialformer import SocialformerModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.template import Sequences, Template
from pyterrier_longdoc.windows import Ragged
from tests.benchmarks.measuring import gemm_rate, peak_mib, show
from tests.benchmarks.rerank import texts

QUERY = 6


def tokens(lengths, seed=0):
    random = np.random.default_rng(seed)
    return Ragged.from_lists([1_000 + np.minimum(random.zipf(1.15, length), 25_000) for length in lengths])


def make_model(small):
    encoder, tokenizer = load_encoder()
    settings = encoder_settings(encoder)
    if not small:
        settings |= {
            "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3_072
        }
    torch.manual_seed(0)
    config = SocialformerConfig(encoder=settings, template=Template.of(tokenizer))
    return SocialformerModel(config, build_encoder(settings, "pooled")).eval(), tokenizer


def without_exchange(model):
    plain = SocialformerModel.__new__(SocialformerModel)
    plain.__dict__.update(model.__dict__, config=dataclasses.replace(model.config, exchange=False))
    return plain


def gflop(model, lengths):
    """Of an encoder over sequences: matrices and attention; of the last layer, keys and values."""
    settings = model.encoder.config
    d, hidden, layers = settings.hidden_size, settings.intermediate_size, settings.num_hidden_layers
    per_token, keys_and_values = 2 * (4 * d * d + 2 * d * hidden), 2 * 2 * d * d
    whole = per_token * lengths.sum() + 4 * d * (lengths.astype(float) ** 2).sum()
    return ((layers - 1) * whole + keys_and_values * lengths.sum()) / 1e9


def in_turns(ways, repeats):
    """Median seconds of each way; they take turns."""
    times = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, work in ways.items():
            start = time.perf_counter()
            work()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def measure(name, model, lengths, repeats):
    documents, queries, budget = tokens(lengths), tokens([QUERY], 1), Budget.for_device("cpu")
    pairs = np.stack([np.zeros(len(documents), np.int64), np.arange(len(documents))], axis=1)
    groups = model.social(queries, documents, pairs)
    read = groups.tokens(documents, pairs[:, 1])
    template, one = model.config.template, np.zeros(len(read), np.int64)
    sequences = framed(template, queries.take(one), read)
    many = 32 * len(documents)
    published = framed(template, queries.take(np.zeros(many, np.int64)), tokens([133 - 3 - QUERY] * many))
    plain, half = without_exchange(model), torch.autocast("cpu", dtype=torch.bfloat16)
    ways = {
        "Socialformer": lambda: model(queries, documents, pairs, budget),
        "without exchange": lambda: plain(queries, documents, pairs, budget),
        "bare encoder, same groups": lambda: encode_sequences(bare, sequences, budget),
        "bare encoder, 32 x 133": lambda: encode_sequences(bare, published, budget),
        "Socialformer, bfloat16": lambda: under(half, lambda: model(queries, documents, pairs, budget)),
    }
    bare = copy.deepcopy(model.encoder)
    read_first_token_only(bare)  # as MaxP does
    gemm, taken = gemm_rate(), in_turns(ways, repeats)
    work = {way: gflop(model, published.lengths if "133" in way else sequences.lengths) for way in ways}
    print(f"{name}: {groups.counts.mean():.1f} groups of {groups.positions.lengths.mean():.0f} tokens a document")
    return [
        {"documents": name, "way": way, "s/doc": taken[way] / len(documents), "GFLOP/s": work[way] / taken[way],
         "share of GEMM": work[way] / taken[way] / gemm, "/ bare": taken[way] / taken["bare encoder, same groups"],
         "/ 32 x 133": taken[way] / taken["bare encoder, 32 x 133"]}
        for way in ways
    ]


def framed(template, queries, read):
    return Sequences.framed(template.pair, [queries, read], template.pad)


def under(context, work):
    with context:
        return work()


def split(model, tokenizer, count):
    """Where the time of re-ranking documents of 2,000 tokens goes."""
    ranker = Socialformer.from_model(model, tokenizer, model_name="benchmark")
    documents, query = texts(tokenizer, count, 1_600, seed=2), texts(tokenizer, 1, QUERY, seed=3)
    pairs = np.stack([np.zeros(count, np.int64), np.arange(count)], axis=1)
    spent = {}
    for part in ("tokenise", "centrality", "graph"):
        start = time.perf_counter()
        if part == "tokenise":
            ids = ranker.tokenize(query), ranker.tokenize(documents).head(np.full(count, 2_048))
        elif part == "centrality":
            for query_place, place in pairs:
                model.social.weights(ids[0][query_place], ids[1][place])
        else:
            model.social(*ids, pairs)
        spent[part] = time.perf_counter() - start
    start = time.perf_counter()
    model(*ids, pairs, Budget.for_device("cpu"))
    spent["encoder"] = time.perf_counter() - start - spent["graph"]
    whole = sum(spent.values())
    return [
        {"part": part, "ms/doc": 1e3 * taken / count, "share": f"{taken / whole:.1%}"} for part, taken in spent.items()
    ]


def growth(model, repeats):
    rows, pair = [], np.zeros((1, 2), np.int64)
    for length in (500, 1_000, 2_000, 4_000):
        documents, queries = tokens([length]), tokens([QUERY], 1)
        counts = model.social(queries, documents, pair).counts[0]
        taken = in_turns({"all": lambda d=documents, q=queries: model(q, d, pair)}, repeats)["all"]
        rows.append({"tokens": length, "groups": counts, "s": taken, "ms a group": 1e3 * taken / counts})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    model, tokenizer = make_model(args.small)
    mixed = np.random.default_rng(2).integers(100, 2_001, args.documents)
    rows = []
    with torch.inference_mode():
        for name, lengths in {"2,000 tokens": [2_000] * args.documents, "100..2,000": mixed}.items():
            rows += measure(name, model, lengths, args.repeats)
        show(f"Forward, {torch.get_num_threads()} threads, {model.encoder.config.hidden_size} dimensions", rows)
        show("Where the time goes, 2,000 tokens", split(model, tokenizer, args.documents))
        show("Growth with length", growth(model, args.repeats))
    print(f"peak memory {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()
