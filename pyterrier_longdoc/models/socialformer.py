"""Socialformer: passages and friend circles that hear of each other after every layer (Zhou et al., WWW 2022).

A document is read as passages and as circles of tokens that a social graph connects, each framed with the query. All
groups pass an encoder's layer on their own (intra-circle); then the central states of a document's groups, one each,
pass one small Transformer layer together and are mixed back (inter-circle); then comes the next layer. At the end the
central states are pooled, aggregated and scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from pyterrier_longdoc.models.centrality import Centrality
from pyterrier_longdoc.models.encoder import build_encoder, check_room
from pyterrier_longdoc.models.exchange import Exchange
from pyterrier_longdoc.models.lockstep import encode_in_lockstep, layers_of
from pyterrier_longdoc.models.parade import AGGREGATIONS
from pyterrier_longdoc.models.passages import new_head
from pyterrier_longdoc.models.social_groups import Groups, SocialGroups
from pyterrier_longdoc.models.social_settings import SocialformerConfig
from pyterrier_longdoc.models.socialformer_reference import real_groups, renamed
from pyterrier_longdoc.pooling import Budget, pooled
from pyterrier_longdoc.text.template import Sequences, Template
from pyterrier_longdoc.windows import Ragged

#: Hidden states in memory at once, as a multiple of the tokens of one pass.
_TABLE_FACTOR = 8


class SocialformerModel(nn.Module):
    """Two-stage information transmission over passages and circles.

    Args:
        config: The settings.
        encoder: A loaded encoder of these settings; a random one is built if ``None``.
        centrality: The function of ``centrality="custom"``: maps token ids of a query and a document to weights.

    Raises:
        ValueError: If the encoder is not of BERT's kind, or exchange heads do not divide its dimensions.
    """

    config_class = SocialformerConfig

    def __init__(
        self,
        config: SocialformerConfig,
        encoder: PreTrainedModel | None = None,
        centrality: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = build_encoder(config.encoder, "pooled") if encoder is None else encoder
        layers_of(self.encoder)
        settings = self.encoder.config
        dims, pooler = settings.hidden_size, getattr(self.encoder, "pooler", None)
        self.pooler = nn.Linear(dims, dims)
        if pooler is not None and hasattr(pooler, "dense"):
            self.pooler.load_state_dict(pooler.dense.state_dict())
        self.encoder.pooler = None
        if config.exchange:
            self.exchange = Exchange(dims, config.exchange_heads, config.exchange_hidden)
        self.aggregation = AGGREGATIONS[config.aggregation](settings, None)
        self.head = new_head(settings)
        if config.centrality != "custom":
            centrality = self._own_centrality()
        self.social = SocialGroups(config, settings.vocab_size, centrality)

    @classmethod
    def from_reference(
        cls,
        state_dict: Mapping[str, Tensor],
        bert_config: PretrainedConfig | Mapping[str, Any],
        *,
        template: Template | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> SocialformerModel:
        """Loads the parameters of the published code (smallporridge/Socialformer, ``model/model.py``).

        Args:
            state_dict: Its ``state_dict()``.
            bert_config: Configuration of its BERT.
            template: How to frame token ids; not needed for :meth:`score_groups`.
            **settings: Of :class:`SocialformerConfig`.

        Raises:
            ValueError: If parameters are missing or left over.
        """
        given = bert_config if isinstance(bert_config, Mapping) else bert_config.to_dict()
        config = cls.config_class(encoder={"model_type": "bert", **given}, template=template, **settings)
        state, encoder = renamed(state_dict), build_encoder(config.encoder)
        own = {name.removeprefix("encoder."): value for name, value in state.items() if name.startswith("encoder.")}
        encoder.load_state_dict(own, strict=False)  # before the model takes its frozen copy
        model = cls(config, encoder)
        if not config.exchange:
            state = {name: value for name, value in state.items() if not name.startswith("exchange.")}
        missing, unexpected = model.load_state_dict(state, strict=False)
        missing = [name for name in missing if not name.startswith(("social.", "aggregation."))]
        if missing or unexpected:
            raise ValueError(f"not a Socialformer: parameters missing {missing[:5]}, left over {unexpected[:5]}")
        return model.eval()

    def _own_centrality(self) -> Centrality | None:
        config = self.config
        if "dynamic_centrality" not in config.patterns or not config.n_circles or config.template is None:
            return None
        return Centrality(self.encoder, config.template.pair, attention=config.centrality == "attention")

    # Reading ----------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.encoder.device

    def representation_parameters(self) -> list[nn.Parameter]:
        """Parameters that are trained at the lower rate: the encoder's."""
        return list(self.encoder.parameters())

    def forward(self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget | None = None) -> Tensor:
        """Scores pairs of queries and documents given as token ids.

        Args:
            queries: Token ids of each query.
            documents: Token ids of each document.
            pairs: Query and document number of each pair, ``[p, 2]``.
            budget: Tokens of one pass; the device's default if ``None``.

        Returns:
            float32 ``[p]``.

        Raises:
            ValueError: If a query and a group do not fit into the encoder's positions.
        """
        if self.config.template is None:
            raise ValueError("the model has no template to frame token ids with; use score_groups, or give it one")
        budget = budget or Budget.for_device(self.device.type)
        if not len(pairs):
            return torch.zeros(0, device=self.device)
        groups = self.social(queries, documents, pairs)
        sizes = np.add.reduceat(groups.positions.lengths, groups.offsets[:-1]) + groups.counts * (
            queries.lengths[pairs[:, 0]] + self.config.template.pair.extra
        )

        def compute(batch: np.ndarray) -> Tensor:
            some = groups.take(batch)
            return self.aggregate(self._read(queries, documents, pairs[batch], some, budget), some.counts)

        return pooled(sizes, budget.times(_TABLE_FACTOR), compute)

    def explain(
        self, queries: Ragged, documents: Ragged, pairs: np.ndarray, budget: Budget
    ) -> Iterator[tuple[Groups, np.ndarray]]:
        """The groups of each pair, and what each adds to the score; arguments as in :meth:`forward`.

        That is gradient times state. With ``"max"``, a group gets the parts of the score where it won the maximum; with
        that and with ``"mean"`` all add up to the score less the head's bias.

        Yields:
            The groups of a pair, and their weights ``[groups]``.
        """
        for pair in pairs:
            groups = self.social(queries, documents, pair[None])
            vectors = self._read(queries, documents, pair[None], groups, budget)
            with torch.inference_mode(False), torch.enable_grad():
                vectors = vectors.detach().clone().requires_grad_()
                (gradient,) = torch.autograd.grad(self.aggregate(vectors, groups.counts).sum(), vectors)
            yield groups, (gradient * vectors).sum(1).detach().double().cpu().numpy()

    def score_groups(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        group_mask: Tensor | None = None,
    ) -> Tensor:
        """Scores documents whose groups are framed already.

        Args:
            input_ids: ``[docs, groups, len]``.
            attention_mask: Real tokens, ``[docs, groups, len]``, padding behind them.
            token_type_ids: ``[docs, groups, len]``; zeros if ``None``.
            group_mask: Real groups, ``[docs, groups]``; all if ``None``. The others are not computed. A document
                without any gets the score of a document whose features are all zero.

        Returns:
            float32 ``[docs]``.

        Raises:
            ValueError: If a real group has no tokens or padding in between, or ``central="node"``: nobody says where
                circles begin.
        """
        if self.config.central != "cls":
            raise ValueError("score_groups reads the first token of each group; the model has central='node'")
        sequences, order, counts = real_groups(input_ids, attention_mask, token_type_ids, group_mask)
        central = np.zeros(len(order), np.int64)
        vectors = self._transmit(sequences, central, order, counts, Budget.for_device(self.device.type))
        return self.aggregate(vectors, counts)

    def _read(
        self, queries: Ragged, documents: Ragged, pairs: np.ndarray, groups: Groups, budget: Budget
    ) -> Tensor:
        """Pooled central states of the groups of some pairs, float32 ``[groups, d]``."""
        positions, template = groups.positions, self.config.template
        query = pairs[groups.pair, 0]
        order = np.argsort(-(positions.lengths + queries.lengths[query]), kind="stable")
        texts = groups.tokens(documents, pairs[:, 1]).take(order)
        widest = int(positions.lengths.max(initial=0))
        longest = int(queries.lengths[query].max())
        check_room(self.encoder, template.pair, longest, widest, "passage_tokens and max_nodes")
        sequences = Sequences.framed(template.pair, [queries.take(query[order]), texts], template.pad)
        centres = groups.is_circle[order] & (self.config.central == "node")
        central = np.where(centres, sequences.starts[:, 1], 0)
        return self._transmit(sequences, central, order, groups.counts, budget)

    def _transmit(
        self, sequences: Sequences, central: np.ndarray, order: np.ndarray, counts: np.ndarray, budget: Budget
    ) -> Tensor:
        """Runs sequences, sorted by length, through all layers, with an exchange after each.

        Args:
            sequences: The groups as the encoder reads them, the longest first.
            central: Place of the central token in each sequence.
            order: Number of the group that each sequence is, documents one behind the other.
            counts: Groups of each document.
            budget: Tokens of one pass.

        Returns:
            Pooled central states, float32 ``[groups, d]``, documents one behind the other.
        """
        if not len(sequences):
            return torch.zeros(0, self.pooler.out_features, device=self.device)
        by_document, by_length = (torch.from_numpy(each).to(self.device) for each in (np.argsort(order), order))

        def between(states: Tensor) -> Tensor:
            return self.exchange(states[by_document], counts, budget)[by_length] if self.config.exchange else states

        states = encode_in_lockstep(self.encoder, sequences, budget, central, between)[by_document]
        with torch.autocast(self.device.type, enabled=False):
            return torch.tanh(self.pooler(states.float()))

    def aggregate(self, vectors: Tensor, counts: np.ndarray) -> Tensor:
        """Scores, float32 ``[documents]``, from the states of all groups ``[groups, d]``, documents one behind another.

        A document without groups is scored as one whose features are all zero.
        """
        starts = np.cumsum(counts) - counts

        def compute(batch: np.ndarray) -> Tensor:
            rows = starts[batch][:, None] + np.arange(counts[batch[0]])
            if not rows.shape[1]:
                return self.head(vectors.new_zeros(len(batch), vectors.shape[1])).squeeze(-1)
            return self.head(self.aggregation(vectors[torch.from_numpy(rows).to(vectors.device)])).squeeze(-1)

        with torch.autocast(self.device.type, enabled=False):
            return pooled(counts, Budget.for_device(self.device.type), compute, kinds=counts)
