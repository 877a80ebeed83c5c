"""TKL's forward pass against a plain padded implementation of the same model, in one run.

``python -m tests.benchmarks.tkl [--documents 32] [--repeats 3]``. The baseline pads all documents of a batch to the
longest, cuts windows with ``unfold``, packs the non-empty ones into one masked pass of ``nn.TransformerEncoder`` and
materialises kernels x regions, as the published code does. Rates are compared with a matrix product of the same minute.
"""

import argparse

import numpy as np
import torch
from torch import nn

from pyterrier_longdoc.models.tkl import TKLConfig, TKLModel
from pyterrier_longdoc.pooling import Budget, Pool
from pyterrier_longdoc.windows import Ragged
from tests.benchmarks.measuring import gemm_rate, peak_mib, seconds, show

DIMS, HEADS, LAYERS, HIDDEN, QUERY, VOCABULARY = 300, 10, 2, 100, 8, 30_000
#: Of the published model: 2 layers over windows of 50 tokens for every 40.
GFLOP_PER_TOKEN = 4.51 / 2_000


class PlainTKL(nn.Module):
    """The same parameters, computed the plain way, with ``log`` saturation."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        layer = nn.TransformerEncoderLayer(DIMS, HEADS, HIDDEN, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.encoder.layers.load_state_dict(model.contextualizer.layers.state_dict())

    def contextualize(self, vectors, mask, positions):
        context = self.encoder(vectors + positions, src_key_padding_mask=~mask)
        alpha = self.model.contextualizer.alpha
        return (alpha * vectors + (1 - alpha) * context) * mask[..., None]

    def forward(self, queries, documents):
        model, count = self.model, len(documents)
        ids, mask = (torch.from_numpy(array) for array in documents.padded())
        spare = -ids.shape[1] % 40
        ids, mask = nn.functional.pad(ids, (5, spare + 5)), nn.functional.pad(mask, (5, spare + 5))
        windows, real = ids.unfold(1, 50, 40).reshape(-1, 50), mask.unfold(1, 50, 40).reshape(-1, 50)
        filled = real.any(1)
        context = self.contextualize(
            model.vectors(windows[filled]), real[filled], model.document_positions(torch.arange(50))
        )
        joined = context.new_zeros(len(windows), 40, DIMS)
        joined[filled] = context[:, 5:45]
        document = joined.view(count, -1, DIMS)
        query_ids, query_mask = (torch.from_numpy(array) for array in queries.padded())
        query = self.contextualize(model.vectors(query_ids), query_mask, model.query_positions(torch.arange(QUERY)))
        cosine = nn.functional.normalize(query, dim=-1) @ nn.functional.normalize(document, dim=-1).transpose(1, 2)
        mu, sigma = model.kernels.mu, model.kernels.sigma
        kernels = torch.exp(-((cosine[..., None] - mu) ** 2) / (2 * sigma**2))
        kernels = kernels * real.view(count, -1, 50)[:, :, 5:45].reshape(count, 1, -1, 1)
        regions = nn.functional.pad(kernels, (0, 0, 0, 30)).unfold(2, 30, 2).sum(-1)
        topography = (regions.clamp(min=1e-10).log().sum(1)) @ model.dense.weight[0]
        return topography.topk(15, dim=1).values @ model.peak_weights


def tokens(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return Ragged.from_lists([rng.integers(1, VOCABULARY, length) for length in lengths])


def padding_share(model, documents):
    windows = model.document_windows(documents.lengths)
    batches = [batch for batch, _ in Pool(windows.widths, Budget.for_device("cpu")).run(lambda batch: batch)]
    computed = sum(len(batch) * windows.widths[batch].max() for batch in batches)
    return 1 - windows.widths.sum() / computed


def measure(name, model, documents, repeats):
    count = len(documents)
    queries, pairs = tokens([QUERY] * count, 1), np.arange(count)[:, None].repeat(2, 1)
    budget, plain = Budget.for_device("cpu"), PlainTKL(model)
    encoded, encoded_queries = model.encode_documents(documents, budget), model.encode_queries(queries)
    half = torch.autocast("cpu", dtype=torch.bfloat16)
    ways = {
        "plain, padded": lambda: plain(queries, documents),
        "this package": lambda: model(queries, documents, pairs, budget),
        "this package, bfloat16": lambda: _under(half, lambda: model(queries, documents, pairs, budget)),
        "documents encoded before": lambda: model.match(encoded_queries, encoded, documents, pairs, budget),
    }
    rows = []
    for way, work in ways.items():
        gemm = gemm_rate()
        taken = seconds(work, repeats)
        rate = documents.lengths.sum() * GFLOP_PER_TOKEN / taken
        rows.append({"documents": name, "way": way, "docs/s": count / taken, "GFLOP/s": rate, "GEMM": gemm})
    for row in rows:
        row["x plain"] = row["docs/s"] / rows[0]["docs/s"]
        row["share of GEMM"] = row["GFLOP/s"] / row["GEMM"]
    print(f"{name}: {padding_share(model, documents):.2%} of the computed tokens are padding")
    return rows


def _under(context, work):
    with context:
        return work()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    settings = {"heads": HEADS, "layers": LAYERS, "feedforward": HIDDEN, "saturation": "log"}
    model = TKLModel(TKLConfig(dims=DIMS, vocabulary=VOCABULARY, **settings)).eval()
    mixed = np.random.default_rng(2).integers(100, 2_001, args.documents)
    sizes = {"2,000 tokens": [2_000] * args.documents, "4,000 tokens": [4_000] * args.documents, "100..2,000": mixed}
    rows = []
    with torch.inference_mode():
        for name, lengths in sizes.items():
            rows += measure(name, model, tokens(lengths), args.repeats)
    show(f"TKL forward, {torch.get_num_threads()} threads, {DIMS} dimensions, {LAYERS} layers", rows)
    print(f"peak memory {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()
