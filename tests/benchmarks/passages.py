"""MaxP against sentence-transformers' CrossEncoder over the same passages, and against ``pt.text``, in one run.

``python -m tests.benchmarks.passages [--documents 12] [--repeats 3]``. The encoder is MiniLM (6 layers, 384 wide) with
a seeded classification head; documents are words of its vocabulary, one token each, so that words and tokens cut the
same passages. All ways have the same encoder in float32; ``x`` is how many times the documents/s of ``of`` they reach.
"""

import argparse
import statistics
import tempfile
import time

import numpy as np
import pandas as pd
import pyterrier as pt
import torch
import transformers
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.text.split import sliding_windows
from pyterrier_longdoc.text.tokens import load_tokenizer
from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, encoder_path
from tests.benchmarks.measuring import peak_mib, show
from tests.benchmarks.rerank import texts

LENGTH, QUERY_WORDS = 225, 8


def save_classifier(path, layers=None):
    torch.manual_seed(0)
    source = encoder_path(DEFAULT_ENCODER)
    options = {} if layers is None else {"num_hidden_layers": layers}
    classifier = AutoModelForSequenceClassification.from_pretrained(source, num_labels=1, **options)
    with torch.no_grad():
        classifier.classifier.weight.mul_(50)  # as it starts, all passages would score alike
    classifier.save_pretrained(path)
    tokenizer = load_tokenizer(source)
    tokenizer.save_pretrained(path)
    return tokenizer


def frame_of(tokenizer, lengths):
    query = texts(tokenizer, 1, QUERY_WORDS, seed=1)[0]
    documents = [texts(tokenizer, 1, length, seed=100 + n)[0] for n, length in enumerate(lengths)]
    docnos = [f"d{n}" for n in range(len(lengths))]
    return pd.DataFrame({"qid": "1", "query": query, "docno": docnos, "text": documents})


def passages_of(frame, length, stride):
    """Words of each passage, with the document that it belongs to; no tail lost."""
    words = [text.split() for text in frame["text"]]
    windows = sliding_windows(np.array([len(each) for each in words]), length, length - stride)
    rows = zip(windows.document, windows.positions[:, 0], windows.widths, strict=True)
    return [" ".join(words[number][start : start + width]) for number, start, width in rows], windows.document


def cross_encoder_maxp(cross, frame, length, stride):
    passages, document = passages_of(frame, length, stride)
    pairs = [(frame["query"].iloc[0], passage) for passage in passages]
    scores = cross.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False, batch_size=32)
    best = np.full(len(frame), -np.inf)
    np.maximum.at(best, document, scores)
    return best


def scorer_of(cross):
    """The same encoder as a scorer of rows, as PyTerrier users write it."""

    def score(frame):
        pairs = list(zip(frame["query"], frame["text"], strict=True))
        return cross.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False, batch_size=32)

    return pt.apply.doc_score(score, batch_size=1_000)


def by_document(frame, ranked):
    return ranked.set_index("docno")["score"].loc[frame["docno"]].to_numpy()


def ways_of(path, cross, frame):
    """Name -> (what it is compared with, whether the scores must be the same, function to scores by document)."""
    maxp = longdoc.MaxP(path, passage_tokens=LENGTH, overlap=0)
    dense = longdoc.MaxP(path, passage_tokens=150, overlap=75)
    scorer = scorer_of(cross)
    same = pt.text.sliding("text", length=LENGTH, stride=LENGTH, prepend_attr=None) >> scorer >> pt.text.max_passage()
    default = pt.text.sliding("text", prepend_attr=None) >> scorer >> pt.text.max_passage()
    ours = longdoc.Passager("text", LENGTH, LENGTH) >> scorer >> longdoc.PassageAggregator("max")
    predict, sliding = "CrossEncoder.predict, max", f"pt.text.sliding({LENGTH}, {LENGTH}), max_passage"
    dense_sliding = "pt.text.sliding(150, 75), max_passage"
    return {
        predict: (predict, True, lambda: cross_encoder_maxp(cross, frame, LENGTH, LENGTH)),
        "MaxP": (predict, True, lambda: by_document(frame, maxp(frame))),
        sliding: (sliding, False, lambda: by_document(frame, same(frame))),
        "MaxP ": (sliding, True, lambda: by_document(frame, maxp(frame))),
        "Passager, PassageAggregator": (sliding, True, lambda: by_document(frame, ours(frame))),
        dense_sliding: (dense_sliding, False, lambda: by_document(frame, default(frame))),
        "MaxP of 150 tokens, stride 75": (dense_sliding, False, lambda: by_document(frame, dense(frame))),
    }


def compare(path, cross, frame, repeats):
    """Runs all ways in turn, so that a machine that slows down slows all of them."""
    ways = ways_of(path, cross, frame)
    taken, scores = {way: [] for way in ways}, {}
    for _ in range(repeats + 1):
        for way, (_, _, work) in ways.items():
            start = time.perf_counter()
            scores[way] = work()
            taken[way].append(time.perf_counter() - start)
    median = {way: statistics.median(times[1:]) for way, times in taken.items()}
    reference, rows = next(iter(scores.values())), []
    for way, (baseline, exact, _) in ways.items():
        error = np.abs(scores[way] - reference).max() / max(1, np.abs(reference).max())
        if exact and error > 1e-5:
            raise ValueError(f"{way}: scores differ by {error}")
        rate, ratio = len(frame) / median[way], median[baseline] / median[way]
        rows.append({"way": way, "docs/s": rate, "x": ratio, "of": baseline, "same scores": error <= 1e-5})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--layers", type=int)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as path:
        tokenizer = save_classifier(path, args.layers)
        cross = CrossEncoder(path, device="cpu", max_length=512)
        sizes = {
            "1,350 words each": [6 * LENGTH] * args.documents,
            "20..2,000 words, log-uniform": (20 * 100 ** rng.uniform(0, 1, 3 * args.documents)).astype(int),
        }
        for name, lengths in sizes.items():
            rows = compare(path, cross, frame_of(tokenizer, lengths), args.repeats)
            show(f"MaxP, {name}, {torch.get_num_threads()} threads", rows)
    print(f"peak memory {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()
