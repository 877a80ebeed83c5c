"""SMITH's encoding against full attention of the same depth and width, and against sentence-transformers.

``python -m tests.benchmarks.smith [--tokens 8192] [--texts 8] [--repeats 3] [--longest 8192]``. Documents/s and
peak memory for lengths from 256 tokens on, each memory in a process of its own; the share of the rate of SMITH's own
matrix products; the padding of both ways to split; throughput beside sentence-transformers, which reads 512 tokens of
each document.
"""

import argparse
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import BertConfig, BertModel

from pyterrier_longdoc.data.provider import LongDocDatasetProvider
from pyterrier_longdoc.models.smith import SMITHModel
from pyterrier_longdoc.models.smith_settings import SMITHConfig
from pyterrier_longdoc.pooling import Budget, Pool
from pyterrier_longdoc.text.sentences import Structured
from pyterrier_longdoc.text.template import Frame, Template
from pyterrier_longdoc.windows import Ragged
from tests.benchmarks.measuring import gemm_rate, peak_mib, seconds, show

LAYERS, TOP, WIDTH, HEADS, HIDDEN, VOCABULARY, BLOCK = 6, 3, 256, 4, 1024, 30_000, 32
FRAME = Frame((((101, 0),), ((102, 0),)), (0,))
BUDGET = Budget(Budget.for_device("cpu").tokens // 2)  # as SMITH.budget()
SIZES = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": HIDDEN, "vocab_size": VOCABULARY}


def smith(length):
    encoder = {"model_type": "bert", **SIZES, "num_hidden_layers": LAYERS, "max_position_embeddings": BLOCK}
    blocks = -(-length // (BLOCK - 12))
    torch.manual_seed(0)
    return SMITHModel(SMITHConfig(encoder, Template(FRAME, FRAME, 0), max_blocks=blocks)).eval()


def full(length, attention):
    settings = {"num_hidden_layers": LAYERS + TOP, "max_position_embeddings": length, "attn_implementation": attention}
    return BertModel(BertConfig(**SIZES, **settings), add_pooling_layer=False).eval()


def documents(count, length, seed=0):
    """Random tokens in sentences of 5 to 30."""
    rng = np.random.default_rng(seed)
    tokens = Ragged.from_lists([rng.integers(200, VOCABULARY, length) for _ in range(count)])
    begins = np.zeros(len(tokens.values), np.int8)
    borders = np.cumsum(rng.integers(5, 31, len(begins)))
    begins[borders[borders < len(begins)]] = 1
    begins[tokens.offsets[:-1]] = 2
    return Structured(tokens.values, tokens.offsets, begins)


def encoder_of(way, length):
    """A function that encodes documents of so many tokens in a way."""
    if way == "SMITH":
        model = smith(length)
        return lambda texts: model.encode_documents(texts, BUDGET)
    model = full(length, way.removeprefix("full, "))
    step = max(1, 2_000 // length)

    def encode(texts):
        ids = torch.from_numpy(texts.padded()[0].astype(np.int64))
        return [functional.normalize(model(input_ids=part).last_hidden_state[:, 0]) for part in ids.split(step)]

    return encode


def product_seconds(texts, model, repeats):
    """Time of the sentence level's matrix products alone, over the very batches that it runs."""
    framed = model.blocks(texts).widths + 2
    batches = [len(batch) * framed[batch].max() for batch, _ in Pool(framed, BUDGET).run(lambda b: b)]
    shapes = [(WIDTH, WIDTH)] * 4 + [(WIDTH, HIDDEN), (HIDDEN, WIDTH)]
    products = [(torch.randn(int(max(batches)), rows), torch.randn(columns, rows)) for rows, columns in shapes]

    def work():
        for rows in batches:
            for _ in range(LAYERS):
                for inputs, weight in products:
                    functional.linear(inputs[: int(rows)], weight)

    return seconds(work, repeats)


def resident(name):
    """A memory figure of this process as Linux tells it, MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def one_peak(way, length):
    """Prints the memory that encoding one document takes beyond the model, MiB."""
    encode, texts = encoder_of(way, length), documents(1, length)
    with torch.inference_mode():
        encode(documents(1, min(64, length)))
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak so far is forgotten
        before = resident("VmRSS")
        encode(texts)
    print(resident("VmHWM") - before)


def peak(way, length):
    command = [sys.executable, "-m", "tests.benchmarks.smith", "--peak", way, "--longest", str(length)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def lengths_table(total, longest, repeats):
    rows, length = [], 256
    while length <= longest:
        texts = documents(max(1, total // length), length)
        row = {"tokens": length, "documents": len(texts)}
        for way in ("SMITH", "full, sdpa"):
            encode = encoder_of(way, length)
            row[f"{way}: docs/s"] = len(texts) / seconds(lambda encode=encode, texts=texts: encode(texts), repeats)
        row["x sdpa"] = row["SMITH: docs/s"] / row["full, sdpa: docs/s"]
        row["SMITH: tokens/s"] = row["SMITH: docs/s"] * length
        for way in ("SMITH", "full, sdpa", "full, eager"):
            row[f"{way}: MiB"] = peak(way, length)
        row["share of eager"] = row["SMITH: MiB"] / row["full, eager: MiB"]
        rows.append(row)
        length *= 2
    show("documents/s and peak memory against length", rows)


def products_table(total, repeats):
    texts, model = documents(max(2, total // 1_536), 1_536), smith(1_536)
    alone = product_seconds(texts, model, repeats)
    whole = seconds(lambda: model.encode_documents(texts, BUDGET), repeats)
    alone = min(alone, product_seconds(texts, model, repeats))
    row = {"products alone, s": alone, "encoding, s": whole, "share": alone / whole, "square GFLOP/s": gemm_rate()}
    show("1,536 tokens: encoding against its own matrix products", [row])


def texts_of_the_demo(count):
    dataset = LongDocDatasetProvider().get_dataset("python-docs")
    return [row["text"] for row in islice(dataset.get_corpus_iter(), count)]


def real_texts_tables(texts, repeats):
    from sentence_transformers import SentenceTransformer

    from pyterrier_longdoc import SMITH
    from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, encoder_path

    ours = SMITH(DEFAULT_ENCODER, max_blocks=512)
    show("padding of the blocks of the demo's documents", ours.splittings(texts))
    theirs = SentenceTransformer(encoder_path(DEFAULT_ENCODER), device="cpu")
    theirs.max_seq_length = 512
    lengths = ours.tokenize(texts).lengths
    rows = []
    for name, work, read in (
        ("sentence-transformers, 512 tokens", lambda: theirs.encode(texts), np.minimum(lengths, 510)),
        ("SMITH, all tokens", lambda: ours.encode_docs(texts), lengths),
    ):
        taken = seconds(work, repeats)
        rows.append({"encoder": name, "docs/s": len(texts) / taken, "tokens/s": int(read.sum()) / taken})
    show(f"the same MiniLM over {len(texts)} documents of {lengths.mean():.0f} tokens", rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=8_192, help="of all documents of a length")
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--longest", type=int, default=8_192)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        one_peak(args.peak, args.longest)
        return
    print(f"{torch.get_num_threads()} threads; {LAYERS}+{TOP} layers, {WIDTH} wide")
    with torch.inference_mode():
        products_table(args.tokens, args.repeats)
        lengths_table(args.tokens, args.longest, args.repeats)
        real_texts_tables(texts_of_the_demo(args.texts), args.repeats)
    print(f"peak memory {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()
