"""A pre-training that takes a second, killed or in several processes: ``python toy_pretraining.py kill|share DIR``."""

import os
import signal
import sys

import numpy as np
import torch

from pyterrier_longdoc import SMITH

SIZES = {
    "width": 16, "sentence_layers": 1, "sentence_heads": 2, "sentence_feedforward": 16, "layers": 1, "heads": 2,
    "feedforward": 16, "block_length": 10, "max_blocks": 8,
}
RUN = {"epochs": 3, "batch_size": 4, "validate_every": 2, "seed": 5, "lr": 3e-3, "representation_lr": 3e-3}
RUN |= {"patience": None, "save_every": 1, "verbose": False}
MATTERS = (
    ["river", "lake", "sea", "boat", "fish"], ["wine", "bread", "cheese", "oven", "salt"],
    ["code", "loop", "array", "graph", "node"], ["tree", "root", "leaf", "moss", "fern"],
)


def texts(count=10, seed=0):
    """Documents about one of four matters, of 2 to 5 sentences."""
    random = np.random.default_rng(seed)
    return [" ".join(_sentence(random, MATTERS[n % 4]) for _ in range(2 + n % 4)) for n in range(count)]


def _sentence(random, words):
    return " ".join(random.choice(words, 5)) + "."


def tokenizer():
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *sum(MATTERS, [])]
    backend = BertWordPieceTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    return BertTokenizerFast(tokenizer_object=backend._tokenizer)


def smith(**options):
    return SMITH(tokenizer=tokenizer(), device="cpu", **{**SIZES, **options})


def kill_after(steps):
    """Kills this process when the state of so many steps is in place."""
    replace, seen = os.replace, 0

    def killing(source, target):
        nonlocal seen
        replace(source, target)
        seen += os.path.basename(target) == "last"
        if seen == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = killing


if __name__ == "__main__":
    torch.set_num_threads(1)
    what, directory = sys.argv[1:]
    if what == "kill":
        kill_after(9)
        smith().pretrain(texts(), texts(4, 1), output_dir=directory, **RUN)
    else:
        smith(dropout=0.0).pretrain(texts(), texts(4, 1), masked_blocks=0, output_dir=directory, **RUN)
