"""Every ranker over the same documents in one run: documents/s, GFLOP/s, peak memory; and IDCM against MaxP.

``python -m tests.benchmarks.rankers [--documents 8] [--tokens 2000] [--layers 2] [--only MaxP IDCM]``. Encoders are
BERTs of MiniLM's width with random weights. Each ranker runs in a process of its own, so that its peak memory is its
own; rates are compared with a matrix product of the same minute. Target: IDCM at k = 4 at least 2.5 times MaxP, with
the 6 layers of the default encoder.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from tests.benchmarks.measuring import gemm_rate, peak_mib, seconds, show

#: Ranker -> how it is made of an encoder on disk; ``limit`` are the options of those without a limit of their own.
RANKERS = {
    "TKL": lambda ld, encoder, limit: ld.TKL(**limit),
    "TK": lambda ld, encoder, limit: ld.TK(),
    "ConvKNRM": lambda ld, encoder, limit: ld.ConvKNRM(**limit),
    "KNRM": lambda ld, encoder, limit: ld.KNRM(**limit),
    "FirstP": lambda ld, encoder, limit: ld.FirstP(encoder),
    "MaxP": lambda ld, encoder, limit: ld.MaxP(encoder, **limit),
    "PARADE": lambda ld, encoder, limit: ld.PARADE(encoder, **limit),
    "IDCM": lambda ld, encoder, limit: ld.IDCM(encoder, max_passages=4, **limit),
    "Longformer": lambda ld, encoder, limit: ld.Longformer(encoder, **limit),
    "QDSTransformer": lambda ld, encoder, limit: ld.QDSTransformer(encoder, **limit),
    "BigBird": lambda ld, encoder, limit: ld.BigBird(encoder, **limit),
    "LongCE": lambda ld, encoder, limit: ld.LongCE(encoder + "-modern", **limit),
    "Socialformer": lambda ld, encoder, limit: ld.Socialformer(encoder, **limit),
    "SMITH": lambda ld, encoder, limit: ld.SMITH(encoder),
    "CoLDE": lambda ld, encoder, limit: ld.CoLDE(encoder, **limit),
    "MatchBERT": lambda ld, encoder, limit: ld.MatchBERT(encoder),
    "HAN": lambda ld, encoder, limit: ld.HAN(**limit),
    "SMASH": lambda ld, encoder, limit: ld.SMASH(**limit),
}


def save_encoders(folder, layers):
    """A BERT of MiniLM's width, and a ModernBERT of the same, with MiniLM's tokenizer."""
    from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel

    from pyterrier_longdoc.text.tokens import load_tokenizer
    from pyterrier_longdoc.text.vectors import DEFAULT_ENCODER, encoder_path

    tokenizer = load_tokenizer(encoder_path(DEFAULT_ENCODER))
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 384, "num_attention_heads": 12, "num_hidden_layers": layers}
    ends = {"pad_token_id": 0, "cls_token_id": 101, "sep_token_id": 102, "bos_token_id": 101, "eos_token_id": 102}
    torch.manual_seed(0)
    encoders = {
        "bert": BertModel(BertConfig(**sizes, intermediate_size=1536)),
        "bert-modern": ModernBertModel(ModernBertConfig(**sizes, **ends, intermediate_size=768)),
    }
    for name, encoder in encoders.items():
        encoder.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return str(folder / "bert")


def measure(name, encoder, documents, tokens):
    """One ranker in this process; prints a row as JSON."""
    import pyterrier_longdoc as longdoc
    from pyterrier_longdoc.evaluation.comparison import operations
    from tests.benchmarks.rerank import frame

    warnings.simplefilter("ignore")
    ranker = RANKERS[name](longdoc, encoder, {"max_doc_tokens": tokens})
    results = frame(ranker.tokenizer, documents, int(tokens * 0.8))  # words; most are one token, some two
    operations_per_document = operations(ranker, results.head(1)) / 1e9
    before = peak_mib()
    gemm = gemm_rate()
    rate = documents / seconds(lambda: ranker(results), repeats=2)
    row = {"ranker": name, "docs/s": rate, "GFLOP/doc": operations_per_document}
    row |= {"GFLOP/s": rate * operations_per_document, "GEMM": gemm, "share": rate * operations_per_document / gemm}
    print("row", json.dumps({**row, "peak MiB": peak_mib(), "of it scoring": peak_mib() - before}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2_000)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=list(RANKERS), default=list(RANKERS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--encoder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return measure(args.one, args.encoder, args.documents, args.tokens)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        encoder = save_encoders(Path(folder), args.layers)
        sizes = ["--documents", str(args.documents), "--tokens", str(args.tokens), "--encoder", encoder]
        for name in args.only:
            command = [sys.executable, "-m", "tests.benchmarks.rankers", "--one", name, *sizes]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = [line for line in done.stdout.splitlines() if line.startswith("row ")]
            if done.returncode or not lines:
                print(f"{name} failed:\n{done.stderr[-2_000:]}")
                continue
            rows.append(json.loads(lines[0].removeprefix("row ")))
            print(f"{name}: {rows[-1]['docs/s']:.2f} documents/s", flush=True)
    title = f"{args.documents} documents of {args.tokens} tokens, {args.layers} layers"
    title += f", {torch.get_num_threads()} threads"
    show(title, [{key: round(value, 2) if key != "ranker" else value for key, value in row.items()} for row in rows])
    rates = {row["ranker"]: row["docs/s"] for row in rows}
    if {"IDCM", "MaxP"} <= rates.keys():
        print(f"\nIDCM (k = 4) / MaxP: {rates['IDCM'] / rates['MaxP']:.2f}x")


if __name__ == "__main__":
    main()
