"""Filling blocks: the published code's blocks, worked examples, and what holds for any sentences."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_longdoc.text import fill_blocks
from pyterrier_longdoc.text.blocks import block_windows, padding_share
from pyterrier_longdoc.windows import Ragged

GOLDEN = np.load(Path(__file__).parents[1] / "models" / "golden" / "smith_blocks.npz")


def sentences(*lengths):
    """Sentences of so many tokens, numbered through."""
    borders = np.cumsum([0, *lengths])
    return [list(range(first, end)) for first, end in zip(borders[:-1], borders[1:], strict=True)]


@pytest.mark.parametrize("name", ["L32_N8", "L16_N4", "L32_N64"])
@pytest.mark.parametrize("text", range(5))
def test_blocks_of_the_published_code(text, name):
    length, blocks = (int(part[1:]) for part in name.split("_"))
    lengths = GOLDEN[f"text{text}/lengths"]
    given = np.split(GOLDEN[f"text{text}/sentences"], np.cumsum(lengths)[:-1])
    ids = GOLDEN[f"text{text}/{name}/input_ids"].reshape(blocks, length)
    mask = GOLDEN[f"text{text}/{name}/input_mask"].reshape(blocks, length) > 0
    expected = [row[real][1:-2].tolist() for row, real in zip(ids, mask, strict=True) if real.any()]
    assert fill_blocks(given, length, blocks, n_sep=2, overlong="truncate") == expected


@pytest.mark.parametrize("case", range(12))
def test_blocks_of_the_published_code_by_length(case):
    tokens = GOLDEN[f"synth{case}/tokens"].reshape(8, 32)
    expected = [[token for token in row if token >= 0] for row in tokens.tolist() if max(row) != -1 or -2 in row]
    given = sentences(*GOLDEN[f"synth{case}/sent_lens"])
    assert fill_blocks(given, 32, 8, n_sep=2, overlong="truncate") == expected


def test_sentences_fill_blocks_by_hand():
    # Room for 8 of 10: 3 + 4 fit, 2 more do not; 11 goes on in the next block, where 3 + 2 follow
    blocks = fill_blocks(sentences(3, 4, 2, 11, 2, 3), block_length=10, overlong="split")
    assert [len(block) for block in blocks] == [7, 2, 8, 8]
    assert blocks[3] == list(range(17, 25))
    blocks = fill_blocks(sentences(3, 4, 2, 11, 2, 3), block_length=10, overlong="truncate")
    assert [len(block) for block in blocks] == [7, 2, 8, 5]
    assert blocks[2] + blocks[3] == [*range(9, 17), *range(20, 25)]
    blocks = fill_blocks(sentences(3, 0, 4, 2), block_length=10, splitting="natural")
    assert [len(block) for block in blocks] == [3, 4, 2]
    assert fill_blocks(sentences(3, 4, 2), 10, max_blocks=1) == [list(range(7))]
    assert fill_blocks([], 10) == fill_blocks([[], []], 10) == []


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 12))
def test_any_sentences(lengths, room):
    given = sentences(*lengths)
    everything = [token for sentence in given for token in sentence]
    ends = np.cumsum(lengths)
    greedy = fill_blocks(given, room + 2, None)
    assert [token for block in greedy for token in block] == everything
    assert all(1 <= len(block) <= room for block in greedy)
    for block, following in zip(greedy[:-1], greedy[1:], strict=True):
        rest = int(ends[np.searchsorted(ends, following[0], side="right")]) - following[0]
        broken = following[0] not in ends
        assert len(block) == room if broken else len(block) + rest > room  # full, or the next sentence does not fit
    natural = fill_blocks(given, room + 2, None, splitting="natural")
    assert len(natural) >= len(greedy) or max(lengths) > room
    assert [token for block in natural for token in block] == everything
    kept = {token for block in fill_blocks(given, room + 2, None, overlong="truncate") for token in block}
    assert kept == {token for sentence in given for token in sentence[:room]}


@given(st.lists(st.lists(st.integers(1, 20), max_size=8), min_size=1, max_size=5), st.booleans())
def test_windows_are_the_blocks_of_each_document(documents, split):
    overlong = "split" if split else "truncate"
    starts = Ragged.from_lists([np.cumsum([0, *lengths])[:-1] if lengths else [] for lengths in documents])
    windows = block_windows(starts, np.array([sum(lengths) for lengths in documents]), 9, overlong, "greedy")
    for number, lengths in enumerate(documents):
        own = windows.positions[windows.document == number]
        expected = fill_blocks(sentences(*lengths), 11, None, overlong=overlong) or [[]]  # an empty one has one too
        assert [row[row >= 0].tolist() for row in own] == expected
    assert windows.core_mask().sum() == windows.widths.sum()


def test_padding_share():
    assert padding_share(np.array([8, 4]), 8) == 0.25
    assert padding_share(np.array([]), 8) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_length": 2}, "block_length=2 leaves no room beside 2 special tokens"),
        ({"block_length": 3, "n_sep": 2}, "leaves no room beside 3"),
        ({"max_blocks": 0}, "max_blocks must be a whole number of at least 1, got 0"),
        ({"max_blocks": 1.5}, "max_blocks must be a whole number"),
        ({"block_length": "32"}, "block_length must be a whole number"),
        ({"overlong": "drop"}, "overlong must be one of 'split', 'truncate', got 'drop'"),
        ({"splitting": "fixed"}, "splitting must be one of 'greedy', 'natural', got 'fixed'"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        fill_blocks([[1]], **options)


def test_importing_it_is_cheap():
    heavy = "{'torch', 'transformers', 'sentencex'}"
    program = f"import pyterrier_longdoc.text, sys; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"
