"""Tiny rankers and frames that all tests share: local, seeded and small, so that no test needs a network or a GPU.

``make_ranker`` runs a test once for every ranker of the package. A new ranker joins with one line in ``RANKERS``.
"""

from __future__ import annotations

import os

os.environ.update(HF_HUB_OFFLINE="1", PT_TEST_TRANSFORMER_REPORTS="0", TOKENIZERS_PARALLELISM="false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from hypothesis import HealthCheck, settings

import pyterrier_longdoc as longdoc

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may be told to ignore Ctrl-C
pt.documentation._cached_objects_inv = {}  # schematics of whole pipelines without a download
settings.register_profile(
    "tests", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

WORDS = [f"w{number}" for number in range(200)]
DIMS = 24


@dataclass(frozen=True)
class Tiny:
    """What tiny rankers are built from: word vectors, a BERT on disk, and the texts of a corpus."""

    words: longdoc.Vectors
    encoder: str
    corpus: tuple[str, ...]


#: Every ranker of the package: name -> builder from a :class:`Tiny` and options.
RANKERS = {
    "TKL": lambda tiny, **options: longdoc.TKL(tiny.words, heads=4, corpus=tiny.corpus, **options),
    "TKL-embedding": lambda tiny, **options: longdoc.TKL(tiny.words, heads=4, saturation="embedding", **options),
    "TKL-idf": lambda tiny, **options: longdoc.TKL(
        tiny.words, heads=4, saturation="idf", corpus=tiny.corpus, **options
    ),
    "TKL-log": lambda tiny, **options: longdoc.TKL(tiny.words, heads=4, saturation="log", **options),
    "TKL-linear": lambda tiny, **options: longdoc.TKL(tiny.words, heads=4, saturation="linear", **options),
    "TKL-encoder": lambda tiny, **options: longdoc.TKL(tiny.encoder, heads=4, corpus=tiny.corpus, **options),
    "TK": lambda tiny, **options: longdoc.TK(tiny.words, heads=4, **options),
    "KNRM": lambda tiny, **options: longdoc.KNRM(tiny.words, **options),
    "SMITH": lambda tiny, **options: longdoc.SMITH(
        tiny.encoder, heads=4, layers=1, feedforward=32, block_length=20, max_blocks=50, combine="attention", **options
    ),
    "CoLDE": lambda tiny, **options: longdoc.CoLDE(tiny.encoder, chunk_tokens=60, hidden=12, dims=16, **options),
    "MatchBERT": lambda tiny, seed=0, **options: shake(
        longdoc.MatchBERT(tiny.encoder, **{"pooling": "cls", "max_tokens": None, **options}), seed, scale=0.01 * seed
    ),
    "HAN": lambda tiny, **options: longdoc.HAN(tiny.words, hidden=6, **options),
    "SMASH": lambda tiny, **options: longdoc.SMASH(tiny.words, hidden=4, **options),
    "ConvKNRM": lambda tiny, **options: longdoc.ConvKNRM(tiny.words, filters=8, **options),
    "FirstP": lambda tiny, **options: longdoc.FirstP(tiny.encoder, **options),
    "MaxP": lambda tiny, **options: longdoc.MaxP(tiny.encoder, passage_tokens=60, overlap=10, **options),
    "SumP": lambda tiny, **options: longdoc.SumP(tiny.encoder, passage_tokens=200, **options),
    "AvgP": lambda tiny, **options: longdoc.AvgP(tiny.encoder, unit="sentence", passage_tokens=80, **options),
    "KMaxP": lambda tiny, **options: longdoc.KMaxP(tiny.encoder, passage_tokens=100, k=2, **options),
    "Socialformer": lambda tiny, **options: longdoc.Socialformer(
        tiny.encoder, corpus=tiny.corpus, passage_tokens=60, n_circles=4, max_nodes=40, **options
    ),
    "PARADE": lambda tiny, **options: longdoc.PARADE(tiny.encoder, passage_tokens=90, overlap=20, **options),
    "IDCM": lambda tiny, **options: longdoc.IDCM(tiny.encoder, max_passages=40, summed=40, **options),
    "Longformer": lambda tiny, **options: longdoc.Longformer(tiny.encoder, attention_window=32, **options),
    "QDSTransformer": lambda tiny, **options: longdoc.QDSTransformer(tiny.encoder, attention_window=32, **options),
    "BigBird": lambda tiny, **options: longdoc.BigBird(tiny.encoder, block_size=8, num_random_blocks=2, **options),
    "LongCE": lambda tiny, **options: longdoc.LongCE(tiny.encoder, **options),
}


def words(generator: np.random.Generator, count: int) -> str:
    """A text of ``count`` tokens, frequent words more often, as in real text."""
    ranks = np.minimum(generator.zipf(1.3, count) - 1, len(WORDS) - 1)
    return " ".join(WORDS[rank] for rank in ranks)


def shake(ranker: longdoc.ReRanker, seed: int = 1, scale: float = 0.05) -> longdoc.ReRanker:
    """Moves all weights off their start, where some scores are too small to tell right from wrong."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in ranker.model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return ranker


def as_frame(*rows: tuple[str, str, str, str | float]) -> pd.DataFrame:
    """A result frame from (qid, query, docno, text)."""
    return pd.DataFrame(list(rows), columns=["qid", "query", "docno", "text"])


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """See :class:`Tiny`."""
    generator = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("tiny")
    file = folder / "words.txt"
    table = generator.normal(0, 0.4, (len(WORDS), DIMS))
    lines = (f"{word} {' '.join(f'{value:.5f}' for value in row)}\n" for word, row in zip(WORDS, table, strict=True))
    file.write_text("".join(lines), encoding="utf-8")
    vectors = longdoc.Vectors.from_text_file(file)
    encoder = _save_bert(folder / "bert", vectors)
    return Tiny(vectors, str(encoder), tuple(words(generator, 40) for _ in range(30)))


def _save_bert(path: Path, vectors: longdoc.Vectors) -> Path:
    """A BERT with random weights and a vocabulary of word pieces ("w17" is read as "w", "##1", "##7")."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    path.mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w", *(f"##{digit}" for digit in range(10)), *WORDS[:60]]
    BertTokenizerFast(
        tokenizer_object=BertWordPieceTokenizer(vocab={piece: i for i, piece in enumerate(pieces)})._tokenizer
    ).save_pretrained(path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=DIMS, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=4_096, initializer_range=0.4,
    )
    BertModel(config).save_pretrained(path)
    return path


@pytest.fixture(scope="session", params=RANKERS)
def make_ranker(request: pytest.FixtureRequest, tiny: Tiny):
    """Builds the ranker of this round, weights shaken, reading whole documents; takes options."""

    def make(*, shaken: bool = True, **options: object) -> longdoc.ReRanker:
        ranker = RANKERS[request.param](tiny, **{"max_doc_tokens": None, **options})
        return shake(ranker) if shaken else ranker

    make.name = request.param
    return make


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """Documents of 0 to 700 tokens, each different, some with words that no vocabulary holds."""
    generator = np.random.default_rng(7)
    lengths = [0, 1, 2, 29, 30, 31, 39, 40, 41, 44, 50, 80, 121, 200, 333, 700]
    texts = [words(generator, length) for length in lengths]
    return [*texts, "unseen words only", texts[10].upper() + " Ünseen w3", texts[12] + " " + texts[12]]


@pytest.fixture(scope="session")
def _frame(documents: list[str]) -> pd.DataFrame:
    queries = {"q1": "w1 w2 w3", "q2": "w5", "q10": "w0 w40 unseen w7 w9 w150 w2"}
    rows = [(qid, query, f"d{n}", text) for qid, query in queries.items() for n, text in enumerate(documents)]
    frame = as_frame(*rows).sample(frac=1, random_state=3)
    return frame.assign(score=np.arange(len(frame), dtype=float), rank=7, note=[f"n{n}" for n in range(len(frame))])


@pytest.fixture
def frame(_frame: pd.DataFrame) -> pd.DataFrame:
    """Three queries over all ``documents``, shuffled, with a score, a rank and a column of the user's own."""
    return _frame.copy()


@pytest.fixture
def small(_frame: pd.DataFrame) -> pd.DataFrame:
    """Some rows of ``frame``: two queries, ten documents."""
    return _frame[_frame.qid.isin(["q1", "q10"]) & _frame.docno.isin([f"d{n}" for n in range(4, 14)])].copy()
