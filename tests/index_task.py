"""Builds an index of a tiny collection, in this process or in one that is killed at some moment of writing."""

import os
import signal
from pathlib import Path

import numpy as np
from pyterrier_dr import FlexIndex

import pyterrier_longdoc as longdoc
from pyterrier_longdoc import indexing
from tests.training.toy_task import WORDS, tiny_vectors

SHARD = 64


def encoder(seed=0, **options):
    return longdoc.HAN(tiny_vectors(8), hidden=4, seed=seed, device="cpu", **options)


def corpus(count=600, seed=0):
    random = np.random.default_rng(seed)
    return [
        {"docno": f"d{n}", "text": " ".join(random.choice(WORDS, 1 + n % 40)), "url": "not read"} for n in range(count)
    ]


def build(path, own=None, **options):
    return indexing.build_index(own or encoder(), corpus(), path, **{"shard_size": SHARD, "verbose": False, **options})


def content(path):
    return {name: (Path(path) / name).read_bytes() for name in ("vecs.f4", "docnos.npids")}


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def build_and_die(path, event, number):
    """Builds in a child process, which is killed by SIGKILL; returns its exit status.

    Args:
        path: The index.
        event: ``"writing"``: the bytes of a shard are there, but not in place; ``"wrote"``: it is in place;
            ``"joining"``: the index is there, but not in place; ``"joined"``: it is in place, beside the shards.
        number: Which shard that the child writes.
    """
    child = os.fork()
    if not child:
        try:
            _kill_at(event, number)
            build(path)
        finally:
            os._exit(0)  # a child that was not killed must not go on as a second pytest
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _kill_at(event, number):
    replace, index, written = os.replace, FlexIndex.index, []

    def replacing(source, target):
        if str(target).endswith(".npz"):
            written.append(target)
            if event == "writing" and len(written) == number:
                _die()
        replace(source, target)
        if event == "wrote" and len(written) == number:
            _die()

    def joining(self, records):
        index(self, records)
        _die()

    os.replace = replacing
    if event == "joined":
        indexing.shutil.rmtree = lambda path, **_: _die()
    if event == "joining":
        FlexIndex.index = joining
