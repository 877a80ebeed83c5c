"""CoLDE: one pool of chunks against one document at a time, and the memory of a contrastive step.

``python -m tests.benchmarks.colde [--documents 48] [--chunk-tokens 256] [--sizes 8 16 64 100 200] [--device cpu]``. A
2-layer, 128-wide encoder. First, documents of mixed length are encoded in three ways, to the same vectors: document by
document with chunks padded to their full length, as the paper does; document by document without padding; all as one
pool. Then each contrastive step over N documents of 6 chunks runs on the CPU in a process of its own, with all
activations kept (plain) or with gradient caching, and reports how far its memory rose over what it held before; plain
steps are left out where they would not fit.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from pyterrier_longdoc.models.colde import CoLDEModel, SectionRows
from pyterrier_longdoc.models.colde_settings import CoLDEConfig
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.sections import Sectioned
from pyterrier_longdoc.text.template import Frame, Template
from pyterrier_longdoc.training.losses import contrastive_loss
from pyterrier_longdoc.windows import Ragged
from tests.benchmarks.measuring import peak_mib, seconds, show

VOCABULARY, CLS, SEP = 30_000, 1, 2
TEMPLATE = Template(
    single=Frame((((CLS, 0),), ((SEP, 0),)), (0,)),
    pair=Frame((((CLS, 0),), ((SEP, 0),), ((SEP, 0),)), (0, 0)),
    pad=0,
)


def model_of(chunk_tokens):
    encoder = {
        "model_type": "bert", "vocab_size": VOCABULARY, "hidden_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 512, "max_position_embeddings": 512,
    }
    torch.manual_seed(0)
    return CoLDEModel(CoLDEConfig(encoder, TEMPLATE, chunk_tokens=chunk_tokens))


def documents_of(lengths, seed=0):
    """Documents of two sections of equal length."""
    random = np.random.default_rng(seed)
    tokens = Ragged.from_lists([random.integers(10, VOCABULARY, length) for length in lengths])
    section = np.concatenate([np.repeat([0, 1], [length - length // 2, length // 2]) for length in lengths])
    return Sectioned(tokens.values, tokens.offsets, np.zeros(len(section), np.int8), section.astype(np.int8))


# Pooling --------------------------------------------------------------------------------------------------------------


def padded(model, document):
    """One document whose chunks are all padded to their full length."""
    chunks = model.chunks(document)
    ids, _, mask = TEMPLATE.windows(document, chunks.windows).table(np.arange(len(chunks.windows)))
    more = model.config.chunk_tokens - ids.shape[1]
    ids, mask = (
        torch.from_numpy(np.pad(each, ((0, 0), (0, more)))).to(model.device) for each in (ids, mask.astype(np.int64))
    )
    places = np.minimum(chunks.number, model.config.chunk_numbers - 1)
    section, number = (torch.from_numpy(each).to(model.device) for each in (chunks.section, places))
    vectors = model.encoder.get_input_embeddings()(ids)
    vectors = vectors + (model.section_embeddings(section) + model.chunk_embeddings(number))[:, None]
    pooled = model.encoder(inputs_embeds=vectors, attention_mask=mask).pooler_output
    sections = SectionRows.of(np.arange(len(pooled)), chunks.windows.document, chunks.section)
    mean = model.combine_chunks(pooled, sections, Budget(2_000)).mean(0)
    return mean / mean.norm()


def pooling(count, chunk_tokens, repeats, device):
    model = model_of(chunk_tokens).eval().to(device)
    for table in (model.section_embeddings, model.chunk_embeddings):
        torch.nn.init.normal_(table.weight, std=0.05)
    random = np.random.default_rng(1)
    mixes = {
        "20..3,000 tokens, log-uniform": np.exp(random.uniform(np.log(20), np.log(3_000), count)).astype(int),
        "queries and documents": np.where(np.arange(count) % 2, random.integers(4, 40, count), 1_500),
        "1,000..3,000 tokens": random.integers(1_000, 3_000, count),
    }
    rows = []
    with torch.inference_mode():
        for name, lengths in mixes.items():
            documents = documents_of(lengths)
            singles = [documents.take(np.array([number])) for number in range(count)]
            budget = Budget.for_device(device)
            ways = {
                "one at a time, padded": lambda singles=singles: torch.stack([padded(model, each) for each in singles]),
                "one at a time": lambda singles=singles, budget=budget: torch.cat(
                    [model.encode_documents(each, budget) for each in singles]
                ),
                "one pool": lambda documents=documents, budget=budget: model.encode_documents(documents, budget),
            }
            vectors = [work().cpu() for work in ways.values()]
            error = max((each - vectors[0]).abs().max().item() for each in vectors)
            taken = [seconds(lambda work=work: work().cpu(), repeats) for work in ways.values()]
            for way, each in zip(ways, taken, strict=True):
                rows.append({
                    "documents": name, "way": way, "docs/s": count / each, "x padded": taken[0] / each,
                    "x one at a time": taken[1] / each, "largest difference": error,
                })
    show(f"Encoding {count} documents, chunks of {chunk_tokens}, {device}, {torch.get_num_threads()} threads", rows)


# Memory ---------------------------------------------------------------------------------------------------------------


def step(size, chunk_tokens, cached):
    """One contrastive step; prints how much memory it took, in MiB, and how long."""
    model = model_of(chunk_tokens).train()
    documents = documents_of([6 * (chunk_tokens - TEMPLATE.single.extra)] * size)
    budget = Budget.for_device("cpu")

    def run(batch):
        views, document = model.encode_views(batch, budget, recompute=cached)
        contrastive_loss(views, torch.from_numpy((document[:, None] == document).astype(np.int8))).backward()

    run(documents.take(np.arange(1)).head(np.array([64])))  # gradients of the weights are there from now on
    before = resident_mib()
    taken = seconds_once(lambda: run(documents))
    print(max(0.0, peak_mib() - before), taken)


def seconds_once(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def resident_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def free_mib():
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) / 1024


def memory(sizes, chunk_tokens):
    rows = []
    reference = None
    for size in sorted({8, *sizes}):
        row = {"N": size, "chunks": 6 * size}
        for way in ("plain", "cached"):
            if way == "plain" and reference and reference * size / 8 > free_mib() / 2:
                row[f"{way} MiB"] = row[f"{way} s"] = float("nan")
                continue
            command = [sys.executable, "-m", "tests.benchmarks.colde", "--step", str(size), "--way", way]
            done = subprocess.run(
                [*command, "--chunk-tokens", str(chunk_tokens)], check=True, capture_output=True, text=True,
                env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},  # freed tensors go back to the system at once
            )
            row[f"{way} MiB"], row[f"{way} s"] = map(float, done.stdout.split()[-2:])
            if reference is None:
                reference = row["plain MiB"]
        row["cached / plain at N=8"] = row["cached MiB"] / reference
        rows.append(row)
    show(f"A contrastive step over N documents of 6 chunks of {chunk_tokens} tokens", rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=48)
    parser.add_argument("--chunk-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=[8, 16, 64, 100, 200])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--step", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=("plain", "cached"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        step(args.step, args.chunk_tokens, args.way == "cached")
        return
    pooling(args.documents, args.chunk_tokens, args.repeats, args.device)
    memory(args.sizes, args.chunk_tokens)


if __name__ == "__main__":
    main()
