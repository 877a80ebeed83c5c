"""Importing the package is cheap, and what it names is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyterrier_longdoc as longdoc

HEAVY = ("torch", "transformers", "tokenizers", "numba", "safetensors", "accelerate", "matplotlib", "pyterrier_dr")


def test_importing_loads_nothing_heavy():
    code = f"import sys, pyterrier_longdoc; print([name for name in {HEAVY} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_public_names():
    assert {"TKL", "TK", "KNRM", "ConvKNRM", "ReRanker", "Vectors"} <= set(longdoc.__all__)
    for name in longdoc.__all__:
        assert getattr(longdoc, name) is not None
        assert name in dir(longdoc)
    with pytest.raises(AttributeError, match="no attribute 'TKM'"):
        longdoc.TKM  # noqa: B018


def test_every_ranker_is_in_the_contract(make_ranker):
    """A ranker that is public but not in conftest.RANKERS would escape the contract."""
    from tests.conftest import RANKERS

    rankers = {
        name for name in longdoc.__all__
        if isinstance(value := getattr(longdoc, name), type) and issubclass(value, longdoc.ReRanker)
    }
    covered = {name.split("-")[0] for name in RANKERS}
    assert rankers - {"ReRanker", "DualEncoder"} <= covered
    assert type(make_ranker()).__name__ == make_ranker.name.split("-")[0]


@pytest.mark.parametrize(
    ("floor", "below"),
    [("graph", {"graph", "checks"}), ("text", {"text", "windows", "checks"}),
     ("models", {"models", "graph", "text", "windows", "pooling", "recent", "checks"})],
)
def test_imports_run_floors_downwards(floor, below):
    root = Path(longdoc.__file__).parent
    for path in (root / floor).glob("*.py"):
        source = path.read_text(encoding="utf-8")
        imported = re.findall(r"^ *(?:from|import) pyterrier_longdoc\.?(\w*)", source, re.MULTILINE)
        assert set(imported) <= below, path.name
