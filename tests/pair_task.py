"""Pairs that a tiny dual encoder learns in seconds: two documents match if they are about the same topic."""

import numpy as np
import pandas as pd

import pyterrier_longdoc as longdoc
from tests.training.toy_task import WORDS, tiny_vectors


def encoder(seed=0, **options):
    return longdoc.HAN(tiny_vectors(), hidden=12, seed=seed, device="cpu", **options)


def pairs(count=120, seed=0):
    """Every second pair matches; ten words of a topic among others in each document."""
    random = np.random.default_rng(seed)

    def text(topic):
        sentences = [
            [*random.choice(WORDS[topic * 10 : topic * 10 + 10], 4), *random.choice(WORDS[100:], 4)] for _ in range(3)
        ]
        return ". ".join(" ".join(sentence) for sentence in sentences)

    rows = []
    for number in range(count):
        topic = int(random.integers(8))
        other = topic if number % 2 else (topic + 1 + int(random.integers(7))) % 8
        rows.append((text(topic), text(other), number % 2))
    return pd.DataFrame(rows, columns=["text_a", "text_b", "label"])


#: Settings with which it is learned.
LEARN = {"epochs": 5, "lr": 1e-2, "representation_lr": 1e-2, "batch_size": 16, "verbose": False}
