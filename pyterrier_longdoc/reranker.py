"""The base of every re-ranker: frames in, frames out, and the promises that all rankers keep.

A call goes one way: check the frame, take its unique queries and documents, tokenise each once, hand groups of
documents out of one pool (to one device or several), score the pairs of each group, put scores and ranks back on the
rows. What differs between rankers is the model and, where there is something to keep between calls, ``_score_group``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_longdoc.checks import check_whole
from pyterrier_longdoc.frames import strings
from pyterrier_longdoc.pooling import Budget, Pool
from pyterrier_longdoc.text.tokens import tokenize
from pyterrier_longdoc.windows import Ragged

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase

    from pyterrier_longdoc.explain import Explanation
    from pyterrier_longdoc.frozen import Frozen

#: Documents in memory at once, as a multiple of the tokens of one forward pass.
_GROUP_FACTOR = 32
_DOCS = "https://github.com/terrierteam/pyterrier_longdoc#readme"


class ReRanker(pt.Estimator):
    """Scores the text of documents against queries; the base class of all rankers of this package.

    Required input columns: ``qid``, ``query``, ``docno`` and ``text_field``. Output: the same rows and columns in the
    same order, with ``score`` (float64) and ``rank``. A document's score depends on query and text alone.

    Args:
        model: Maps queries, documents (token ids) and pairs to scores; see ``models/``.
        tokenizer: A fast Hugging Face tokenizer.
        model_name: Shown in reports, schematics and messages.
        text_field: Column that holds the documents' text.
        batch_size: At most this many documents are in memory at once, encoded.
        token_budget: Tokens of one forward pass; by default what was measured as fastest on the kind of device.
        max_doc_tokens: Tokens of a document that are read; a warning says how many were not. ``None`` reads all.
        device: Such as ``"cpu"`` or ``"cuda:0"``, or a list of devices that share the work; a GPU if there is one.
        dtype: ``"float32"``; ``"bfloat16"`` or ``"float16"`` for the encoder only, never for the score; or ``"auto"``,
            bfloat16 where the device has it and a short test finds it faster.
        verbose: Whether to show progress.

    Raises:
        ValueError: If an option is out of range.
    """

    model_class: ClassVar[type]
    #: Tokens of a document that are read unless the user says otherwise.
    default_max_doc_tokens: ClassVar[int | None] = None
    #: Options that are saved with the weights, as the scores depend on them.
    saved_options: ClassVar[tuple[str, ...]] = ("text_field", "max_doc_tokens")
    #: Settings of :meth:`fit` in place of those of :class:`~pyterrier_longdoc.training.settings.Settings`.
    fit_defaults: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model_name: str,
        text_field: str = "text",
        batch_size: int = 256,
        token_budget: int | None = None,
        max_doc_tokens: int | None | str = "default",
        device: str | torch.device | Sequence[str | torch.device] | None = None,
        dtype: str = "float32",
        verbose: bool = False,
    ) -> None:
        from pyterrier_longdoc.devices import resolve_devices, resolve_dtype

        super().__init__()
        self.devices = resolve_devices(device)
        self.model = model.eval().to(self.devices[0])
        self.tokenizer = tokenizer
        self.model_name = model_name
        self.text_field = text_field
        self.batch_size = batch_size
        self.token_budget = token_budget
        self.max_doc_tokens = self.default_max_doc_tokens if max_doc_tokens == "default" else max_doc_tokens
        self.dtype = resolve_dtype(dtype, self.devices[0])
        self.verbose = verbose

    @property
    def model_name(self) -> str:
        """What the ranker is called; a training names it anew, after its weights."""
        return self._identity["name"]

    @model_name.setter
    def model_name(self, name: str) -> None:
        self._identity = {"name": name}  # shared by all copies over the same weights

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Checks limits whenever they are set: ``pt.GridSearch`` sets them too."""
        if name == "batch_size" or (name in ("token_budget", "max_doc_tokens") and value is not None):
            check_whole(name, value)
            value = int(value)
        super().__setattr__(name, value)

    @classmethod
    def from_model(
        cls, model: nn.Module, tokenizer: PreTrainedTokenizerBase, *, model_name: str, **options: Any  # noqa: ANN401
    ) -> ReRanker:
        """Wraps a model that exists already; arguments as in :class:`ReRanker`."""
        ranker = cls.__new__(cls)
        ReRanker.__init__(ranker, model, tokenizer, model_name=model_name, **options)
        return ranker

    @classmethod
    def from_pretrained(cls, name_or_path: str, **options: Any) -> ReRanker:  # noqa: ANN401
        """Loads a ranker that :meth:`save` wrote.

        Args:
            name_or_path: A directory, or the name of a model on the Hugging Face hub.
            **options: Options of :class:`ReRanker` that take the place of the saved ones.

        Raises:
            ValueError: If it is no checkpoint of this package, of another ranker, or incomplete.
        """
        from pyterrier_longdoc.checkpoint import load

        return load(name_or_path, cls, options)

    def save(self, path: str) -> None:
        """Writes ``config.json``, ``model.safetensors`` and the tokenizer's files into a directory, atomically."""
        from pyterrier_longdoc.checkpoint import save

        save(self, path)

    def push_to_hub(self, repo: str, *, private: bool | None = None) -> str:
        """Uploads the ranker with a model card, so that ``from_pretrained("user/model")`` finds it."""
        from pyterrier_longdoc.artifact import push_to_hub

        return push_to_hub(self, repo, private=private)

    # Scoring ----------------------------------------------------------------------------------------------------------

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Scores and ranks the rows of a result frame; see the class.

        Raises:
            ValueError: If a query is missing.
            TypeError: If a query or text is neither a string nor missing.
            FloatingPointError: If a score is not finite.
        """
        pt.validate.result_frame(inp, extra_columns=["query", *self.text_columns], context=self)
        scores = self._score_frame(inp) if len(inp) else np.empty(0)
        return pt.model.add_ranks(inp.assign(score=scores.astype(np.float64)))

    def _score_frame(self, inp: pd.DataFrame) -> np.ndarray:
        queries, documents, pairs = self._unique_texts(inp)
        unique, row = np.unique(pairs, axis=0, return_inverse=True)
        scores = self.score_pairs(queries, documents, unique)[row.reshape(-1)]
        broken = ~np.isfinite(scores)
        if broken.any():
            first = inp.iloc[int(broken.argmax())]
            hint = "" if self.dtype is None else f"; try dtype='float32' in place of {self.dtype}"
            raise FloatingPointError(
                f"{self}: {int(broken.sum())} of {len(inp)} scores are not finite "
                f"(first: qid {first['qid']!r}, docno {first['docno']!r}){hint}"
            )
        return scores

    def _unique_texts(self, inp: pd.DataFrame) -> tuple[list[str], list[str], np.ndarray]:
        query_of_row, queries = pd.factorize(strings(inp, "query", self))
        document_of_row, documents = pd.factorize(self._documents(inp))
        return list(queries), list(documents), np.stack([query_of_row, document_of_row], axis=1)

    @property
    def text_columns(self) -> list[str]:
        """Columns that a document's text is made of."""
        return [self.text_field]

    def _documents(self, inp: pd.DataFrame) -> pd.Series:
        """What :meth:`tokenize` reads of each row's document."""
        return strings(inp, self.text_field, self)

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str], pairs: np.ndarray) -> np.ndarray:
        """Scores pairs of texts without a frame.

        Args:
            queries: Query texts.
            documents: Document texts; each is tokenised, and encoded, once.
            pairs: Query and document number of each pair, ``[p, 2]``.

        Returns:
            float64 ``[p]``.
        """
        from pyterrier_longdoc.devices import share_out

        scores = np.zeros(len(pairs))
        if not len(pairs):
            return scores
        query_tokens, document_tokens = self.tokenize(queries), self._read(documents)
        by_document = Ragged.from_lists(_positions(pairs[:, 1], len(documents)), np.int64)

        def compute(model: nn.Module, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            rows = by_document.take(group)
            chosen, query = np.unique(pairs[rows.values, 0], return_inverse=True)
            local = np.stack([query, np.repeat(np.arange(len(group)), rows.lengths)], axis=1)
            result = self._score_group(model, query_tokens.take(chosen), document_tokens.take(group), local, budget)
            return rows.values, result.double().cpu().numpy()

        budget = self.budget()
        pool = Pool(document_tokens.lengths, budget.times(_GROUP_FACTOR), max_items=self.batch_size)
        with pt.tqdm(total=len(documents), desc=type(self).__name__, unit="doc", disable=not self.verbose) as bar:
            share_out(pool, compute, self.model, self.devices, self.dtype, scores, bar)
        return scores

    def budget(self) -> Budget:
        """The budget of one forward pass."""
        return Budget.for_device(self.devices[0]) if self.token_budget is None else Budget(self.token_budget)

    def _score_group(
        self, model: nn.Module, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget
    ) -> Tensor:
        return model(queries, documents, pairs, budget)

    def tokenize(self, texts: Sequence[str]) -> Ragged:
        """Token ids of whole texts, queries or documents, as the model reads them."""
        return tokenize(self.tokenizer, texts)

    def _read(self, documents: Sequence[str]) -> Ragged:
        return self._cut(self.tokenize(documents), self.max_doc_tokens, "max_doc_tokens", "documents")

    def _cut(self, tokens: Ragged, limit: int | None, name: str, what: str) -> Ragged:
        """The first ``limit`` tokens of each text; a warning says how much that leaves out."""
        if limit is None or not (cut := tokens.lengths > limit).any():
            return tokens
        kept = np.minimum(tokens.lengths, limit)
        warnings.warn(
            f"{self}: {int(cut.sum())} of {len(tokens)} {what} are longer than {name}={limit}; "
            f"{1 - kept.sum() / tokens.lengths.sum():.1%} of all tokens were not read",
            stacklevel=6,
        )
        return tokens.head(kept)

    # Training and explaining ------------------------------------------------------------------------------------------

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> ReRanker:
        """Trains the ranker on the results of a first stage; see :func:`pyterrier_longdoc.training.fit`."""
        from pyterrier_longdoc.training import fit

        return fit(self, topics_or_res_tr, qrels_tr, topics_or_res_va, qrels_va, **settings)

    def explain(self, res: pd.DataFrame) -> Explanation:
        """Which parts of the documents made the scores; see :class:`pyterrier_longdoc.explain.Explanation`."""
        from pyterrier_longdoc.explain import explain

        return explain(self, res)

    def weights_id(self) -> str:
        """A short hash of the weights: other after every training."""
        if "weights" not in self._identity:
            from pyterrier_longdoc.checkpoint import fingerprint

            self._identity["weights"] = fingerprint(self.model)
        return self._identity["weights"]

    def weights_changed(self, *, rename: bool = True) -> None:
        """Forgets what was known of the old weights, here and in all copies; to be called after changing them.

        Args:
            rename: Whether to name the ranker after the new ones: what it was called, ``#`` and their hash.
        """
        name = self.model_name
        self._identity.clear()
        self._identity["name"] = name
        if rename:
            self._identity["name"] = f"{name.split('#')[0]}#{self.weights_id()}"

    def frozen(self) -> Frozen:
        """This ranker as a plain transformer, which the ``fit`` of a pipeline leaves alone."""
        from pyterrier_longdoc.frozen import Frozen

        return Frozen(self)

    # The PyTerrier side -----------------------------------------------------------------------------------------------

    @property
    def schematic(self) -> dict[str, str]:
        """How the ranker is drawn; a fixed link, so that drawing needs no network."""
        return {"label": type(self).__name__, "help_url": _DOCS}

    def subtransformers(self) -> dict[str, pt.Transformer]:
        """None: what a ranker is made of is no pipeline."""
        return {}

    def attributes(self) -> list[pt.inspect.TransformerAttribute]:
        """What schematics and :func:`pt.inspect.transformer_attributes` show: options, never weights."""
        names = ("model_name", "text_field", "batch_size", "token_budget", "max_doc_tokens", "verbose")
        return [pt.inspect.TransformerAttribute(name, getattr(self, name)) for name in names]

    def apply_attributes(self, **attributes: Any) -> ReRanker:  # noqa: ANN401
        """A ranker with other options over the same weights."""
        changed = copy.copy(self)
        for name, value in attributes.items():
            changed.set_parameter(name, value)
        return changed

    def __copy__(self) -> ReRanker:
        """Shares the weights, which a pickled ranker does not."""
        shared = type(self).__new__(type(self))
        shared.__dict__.update(self.__dict__)
        return shared

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "model": copy.deepcopy(self.model).cpu()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.model.to(self.devices[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model_name!r})"


def _positions(document_of_pair: np.ndarray, documents: int) -> list[np.ndarray]:
    order = np.argsort(document_of_pair, kind="stable")
    return np.split(order, np.searchsorted(document_of_pair[order], np.arange(1, documents)))
