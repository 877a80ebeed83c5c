"""A task that a tiny ranker learns in seconds, and trainings of it that can be killed or run in several processes.

``python toy_task.py train DIR EVENT NUMBER`` trains, and kills itself at the NUMBER-th EVENT of writing a checkpoint;
``python toy_task.py share DIR`` trains in the processes that accelerate started and saves the ranker.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from pyterrier_longdoc import TKL, Vectors

WORDS = [f"w{number}" for number in range(200)]
RUN = {"epochs": 4, "batch_size": 5, "validate_every": 3, "save_every": 1, "patience": None, "seed": 3}
RUN |= {"loss": "ranknet", "clip_norm": 20.0}  # a smooth loss, and gradients whose length counts: Adam alone ignores it


def tiny_vectors(dims=24):
    tokenizer = Tokenizer(
        models.WordLevel({"[UNK]": 0, **{word: number + 1 for number, word in enumerate(WORDS)}}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    table = np.random.default_rng(0).normal(size=(len(WORDS) + 1, dims)).astype(np.float32)
    return Vectors(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]"), table, "tiny")


def tiny_ranker(ranker_class=TKL, **settings):
    heads = {"heads": 4} if ranker_class.__name__ in ("TK", "TKL") else {}
    return ranker_class(tiny_vectors(), device="cpu", **heads, **settings)


def dropping_out(ranker):
    """Adds dropout, which the kernel family has none of, to see that its random numbers are repeated."""
    ranker.model.vectors.register_forward_hook(lambda module, _, out: functional.dropout(out, 0.1, module.training))
    return ranker


def results(prefix, seed, queries=8, documents=8, length=60):
    """Results of a first stage that is no better than chance, and judgements: two documents hold both query words."""
    random = np.random.default_rng(seed)
    rows, judged = [], []
    for query in range(queries):
        words = random.choice(100, 2, replace=False)
        for document in range(documents):
            text = random.choice(np.arange(100, 200), length)
            if document in (3, 5):
                text[random.choice(length, 2, replace=False)] = words
                judged.append((f"{prefix}{query}", f"{prefix}{query}d{document}", 1))
            rows.append((f"{prefix}{query}", _text(words), f"{prefix}{query}d{document}", _text(text)))
    res = pd.DataFrame(rows, columns=["qid", "query", "docno", "text"]).assign(score=0.0, rank=0)
    return res, pd.DataFrame(judged, columns=["qid", "docno", "label"])


def task():
    return (*results("t", 0), *results("v", 1))


def weights_equal(left, right):
    left, right = left.model.state_dict(), right.model.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def _text(words):
    return " ".join(f"w{word}" for word in words)


def _kill_at(event, number):
    replace, seen = os.replace, 0

    def killing(source, target):
        nonlocal seen
        if event == "slowly":  # time to be killed from outside
            time.sleep(0.02)
        here = {
            "slowly": False,
            "inside": Path(target).name.startswith(".last."),  # weights are written, the state beside them is not
            "between": Path(target).name == "last" and Path(source).name.startswith(".last."),  # the old one is gone
            "best": Path(target).name == "best",  # last is written, best is one behind
        }
        seen += here[event]
        if here[event] and seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    os.replace = killing


if __name__ == "__main__":
    what, directory, *kill = sys.argv[1:]
    if what == "train":
        if kill:
            _kill_at(kill[0], int(kill[1]))
        dropping_out(tiny_ranker()).fit(*task(), output_dir=directory, verbose=False, **RUN)
    else:
        tiny_ranker().fit(*task(), output_dir=directory, **{**RUN, "batch_size": 7, "accumulate": 2})
        print(f"{torch.distributed.get_rank()}/{torch.distributed.get_world_size()}")
