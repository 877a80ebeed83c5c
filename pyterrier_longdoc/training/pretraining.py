"""SMITH's pre-training as a task of the one trainer (Yang et al., CIKM 2020, section 4.2).

What is masked in a document follows from (seed, epoch, number of the document), so that it is other words and blocks in
every epoch, and the same ones after a resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from torch import Tensor, nn

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.devices import inference
from pyterrier_longdoc.models.masked_modelling import Masked, MaskedModelling, Predictions
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.sentences import Structured
from pyterrier_longdoc.training.fitting import processes_for, train
from pyterrier_longdoc.training.settings import Settings
from pyterrier_longdoc.training.task import hash_of, shuffled

if TYPE_CHECKING:
    from pyterrier_longdoc.smith import SMITH
    from pyterrier_longdoc.training.processes import AccelerateProcesses, OneProcess

#: A corpus: texts, or rows with a text field, such as ``dataset.get_corpus_iter()`` gives.
Corpus = pd.DataFrame | Iterable[str | Mapping[str, Any]]
#: The paper's rate and batch. It read 715,000 documents 68 times, until the loss on held-out ones fell no more.
PRETRAINING: dict[str, Any] = {
    "lr": 5e-5, "representation_lr": 5e-5, "batch_size": 32, "epochs": 10, "weight_decay": 0.01, "clip_norm": 1.0,
    "schedule": "linear",
}
#: Settings that only a training on queries has.
_OF_RANKING = ("loss", "negatives", "min_label", "graded", "teacher", "measure", "train_doc_tokens")
#: First number of the seeds of masks; those of other uses are in :mod:`~pyterrier_longdoc.training.task`.
_MASKS = 4
#: Of BERT: of the chosen words 80 % are masked, 10 % become another word, 10 % stay.
_HIDDEN, _CHANGED = 0.8, 0.9


def pretrain(
    ranker: SMITH,
    corpus: Corpus,
    validation: Corpus | None = None,
    *,
    masked_words: float = 0.15,
    masked_blocks: int = 2,
    output_dir: str | Path | None = None,
    save_every: int | None = None,
    resume: str | Path | None = None,
    verbose: bool = True,
    **settings: Any,  # noqa: ANN401
) -> SMITH:
    """Pre-trains SMITH on plain texts; see :meth:`SMITH.pretrain <pyterrier_longdoc.smith.SMITH.pretrain>`."""
    foreign = sorted(settings.keys() & set(_OF_RANKING))
    if foreign:
        raise TypeError(f"pretrain has no setting {', '.join(map(repr, foreign))}: there are no queries to rank for")
    chosen = Settings.of(**{**PRETRAINING, **settings})
    masks = Masks.of(ranker, masked_words, masked_blocks)
    processes = processes_for(ranker)
    shown = verbose and processes.rank == 0
    task = Pretraining(_documents(ranker, corpus, "corpus", shown), masks, chosen)
    held_out = None
    if validation is not None:
        documents = _documents(ranker, validation, "validation", shown)
        held_out = HeldOut(ranker, Pretraining(documents, masks, chosen), processes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chosen.seed)
        ranker.model.add_masked_heads()
    ranker.weights_changed()
    heads = ranker.model.masked_heads.requires_grad_(True)
    checkpoints = {"output_dir": output_dir, "save_every": save_every, "resume": resume}
    try:
        return train(ranker, task, held_out, processes, verbose=verbose, **checkpoints)
    finally:
        heads.requires_grad_(False)


@dataclass(frozen=True)
class Masks:
    """How much is hidden, and behind what.

    Attributes:
        words: Share of the words.
        blocks: Blocks of a document (m); of one with fewer, all but one.
        token: Id of [MASK].
        others: Ids that take the place of some words, ``[v]``.
    """

    words: float
    blocks: int
    token: int
    others: np.ndarray

    @classmethod
    def of(cls, ranker: SMITH, words: float, blocks: int) -> Masks:
        """The masks that a ranker's tokenizer has.

        Raises:
            ValueError: If a number is out of range, or words are to be masked but the tokenizer has no mask.
        """
        if not 0 <= words < 1:
            raise ValueError(f"masked_words must be a share from 0 to under 1, got {words!r}")
        check_whole("masked_blocks", blocks, 0)
        if not words and not blocks:
            raise ValueError("nothing to learn from: masked_words and masked_blocks are both 0")
        tokenizer = ranker.tokenizer
        if words and tokenizer.mask_token_id is None:
            raise ValueError(f"{ranker}: the tokenizer has no mask_token; set one, or use masked_words=0")
        others = np.setdiff1d(list(tokenizer.get_vocab().values()), tokenizer.all_special_ids)
        return cls(words, blocks, tokenizer.mask_token_id or 0, others)


@dataclass(frozen=True)
class Pretraining:
    """Documents of which words and blocks are to be guessed.

    Attributes:
        documents: Token ids of the documents and their sentences; none is empty.
        masks: What is hidden.
        settings: Seed and size of the batches.
    """

    documents: Structured
    masks: Masks
    settings: Settings

    def __len__(self) -> int:
        return len(self.documents)

    def order(self, epoch: int) -> np.ndarray:
        """The documents in the order of an epoch, int64 ``[e]``."""
        return shuffled(self, epoch)

    def fingerprint(self) -> str:
        """A hash of the documents and of how they are masked."""
        masked = np.array([self.masks.words, self.masks.blocks, self.masks.token], np.float64)
        return hash_of(*self.documents.arrays(), masked, self.masks.others)

    def module(self, model: nn.Module) -> nn.Module:
        """The model with its masked heads."""
        return MaskedModelling(model)

    def loss(
        self, ranker: SMITH, module: nn.Module, epoch: int, examples: np.ndarray, budget: Budget
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of both losses (eq. 7); see :meth:`Task.loss <pyterrier_longdoc.training.task.Task.loss>`.

        That of words is the mean over documents of the mean over their masked words, that of blocks the mean over all
        masked blocks. Blocks are told from those of the same forward pass: with several processes or parts, from those
        of the same process and part.
        """
        documents, masked = self.masked(ranker, epoch, examples)
        predicted = module(documents, masked, budget)
        means = self._means(predicted, documents, masked)
        loss = sum(value for name, value in means.items() if name.endswith("_loss"))
        return loss, {name: value.detach() for name, value in means.items()}

    def masked(self, ranker: SMITH, epoch: int, examples: np.ndarray) -> tuple[Structured, Masked]:
        """Some documents as they are masked in an epoch."""
        documents = self.documents.take(examples)
        windows = ranker.model.blocks(documents)
        rows, read = windows.by_document(len(examples)), windows.positions
        values, tokens, blocks = documents.values.copy(), [], []
        for number, example in enumerate(examples):
            random = np.random.default_rng([self.settings.seed, _MASKS, epoch, int(example)])
            own = read[rows[number]]
            places = documents.offsets[number] + self._choose_words(random, own[own >= 0])
            self._hide(random, values, places)
            tokens.append(places)
            count = max(0, min(self.masks.blocks, len(own) - 1))
            blocks.append(rows[number][random.choice(len(own), count, replace=False)])
        place = np.concatenate(tokens)
        hidden = Structured(values, documents.offsets, documents.begins)
        return hidden, Masked(place, documents.values[place], np.concatenate(blocks))

    def _choose_words(self, random: np.random.Generator, positions: np.ndarray) -> np.ndarray:
        count = max(1, round(self.masks.words * len(positions))) if self.masks.words else 0
        return np.sort(random.choice(positions, count, replace=False)).astype(np.int64)

    def _hide(self, random: np.random.Generator, values: np.ndarray, places: np.ndarray) -> None:
        fate = random.random(len(places))
        changed = (fate >= _HIDDEN) & (fate < _CHANGED)
        values[places[fate < _HIDDEN]] = self.masks.token
        values[places[changed]] = random.choice(self.masks.others, int(changed.sum()))

    def _means(self, predicted: Predictions, documents: Structured, masked: Masked) -> dict[str, Tensor]:
        means = {}
        if self.masks.words:
            document = np.searchsorted(documents.offsets, masked.tokens, side="right") - 1
            share = 1 / (np.bincount(document, minlength=len(documents))[document] * len(documents))
            weights = torch.from_numpy(share).to(predicted.word_losses)
            means["word_loss"] = (weights * predicted.word_losses).sum()
            means["word_accuracy"] = (weights * predicted.words_right).sum()
        if self.masks.blocks:
            count = max(1, len(masked.blocks))
            means["block_loss"] = predicted.block_losses.sum() / count
            means["block_accuracy"] = predicted.blocks_right.sum() / count
        return means


class HeldOut:
    """The losses on documents that are not trained on, masked in the same way every time.

    Args:
        ranker: The ranker.
        task: The documents.
        processes: Each computes its share of the batches.
    """

    def __init__(self, ranker: SMITH, task: Pretraining, processes: OneProcess | AccelerateProcesses) -> None:
        self._ranker, self._task, self._processes = ranker, task, processes

    def fingerprint(self) -> str:
        """A hash of the documents."""
        return self._task.fingerprint()

    def __call__(self) -> dict[str, float]:
        """Means with the weights as they are now; the first one, which decides, is minus the sum of both losses."""
        task, processes = self._task, self._processes
        size = task.settings.batch_size
        batches = [np.arange(len(task))[first : first + size] for first in range(0, len(task), size)]
        module = task.module(self._ranker.model)
        sums: dict[str, float] = {}
        with inference(str(processes.device), None):
            for batch in batches[processes.rank :: processes.count]:
                loss, means = task.loss(self._ranker, module, 0, batch, self._ranker.budget())
                for name, mean in {"negative_loss": -loss, **means}.items():
                    sums[name] = sums.get(name, 0.0) + mean.item() * len(batch) / len(task)
        gathered = processes.gather(sums)
        names = dict.fromkeys(name for part in gathered for name in part)
        return {f"valid_{name}": sum(part.get(name, 0.0) for part in gathered) for name in names}


def _documents(ranker: SMITH, corpus: Corpus, name: str, verbose: bool) -> Structured:
    """The documents of a corpus that are not empty; their texts are not kept."""
    if isinstance(corpus, str) or not isinstance(corpus, Iterable):
        raise TypeError(f"the {name} must be a frame or an iterable of texts or rows, got {type(corpus).__name__}")
    rows = corpus.to_dict("records") if isinstance(corpus, pd.DataFrame) else corpus
    with pt.tqdm(rows, desc=f"{type(ranker).__name__} reads the {name}", unit="doc", disable=not verbose) as shown:
        documents = ranker.tokenize(_text(row, ranker.text_field, name) for row in shown)
    documents = documents.take(np.flatnonzero(documents.lengths))
    if not len(documents):
        raise ValueError(f"{ranker}: the {name} holds no document with any text")
    return documents


def _text(row: Any, field: str, name: str) -> str:  # noqa: ANN401
    """The text of a row of a corpus, empty where it is missing."""
    if isinstance(row, Mapping):
        if field not in row:
            raise ValueError(f"a row of the {name} has no {field!r}; it has {list(row)}")
        row = row[field]
    if pd.api.types.is_scalar(row) and pd.isna(row):
        return ""
    if not isinstance(row, str):
        raise TypeError(f"the {name} holds {type(row).__name__} {row!r}, not text")
    return row
