"""What is remembered, what goes first, and what copies know."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pyterrier_longdoc.recent import Recent


def array(size: int) -> np.ndarray:
    return np.zeros(size, np.uint8)


def test_those_longest_unused_go_first():
    recent = Recent(10)
    for key, size in ((b"a", 4), (b"b", 4)):
        recent.put(key, array(size))
    assert recent.get(b"a").nbytes == 4  # used: b is older now
    recent.put(b"c", array(5))
    assert recent.get(b"b") is None
    assert (recent.get(b"a").nbytes, recent.get(b"c").nbytes) == (4, 5)
    recent.put(b"a", array(1))  # in place of the other: there is room again
    recent.put(b"d", array(4))
    assert len(recent) == 3
    recent.put(b"large", array(99))
    assert len(recent) == 1 and recent.get(b"large").nbytes == 99
    recent.clear()
    assert len(recent) == 0 and recent.get(b"large") is None
    recent.put(b"a", array(10))
    assert len(recent) == 1


def test_copies_start_empty():
    recent = Recent(10)
    recent.put(b"a", array(4))
    for other in (copy.deepcopy(recent), pickle.loads(pickle.dumps(recent))):
        assert len(other) == 0 and other.max_bytes == 10
    assert len(recent) == 1


def test_threads_keep_the_size():
    recent = Recent(50)

    def work(thread: int) -> None:
        for number in range(300):
            recent.put(b"%d" % (number % 40), array(1 + (number + thread) % 9))
            recent.get(b"%d" % (number % 7))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    held = [recent.get(b"%d" % number) for number in range(40)]
    assert 40 <= sum(each.nbytes for each in held if each is not None) <= 50
