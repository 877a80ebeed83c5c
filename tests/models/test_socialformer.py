"""Socialformer's model: the published scores and gradients, and a naive pass over the same groups."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import BertConfig

from pyterrier_longdoc.models.encoder import build_encoder, encoder_settings
from pyterrier_longdoc.models.social_settings import SocialformerConfig
from pyterrier_longdoc.models.socialformer import SocialformerModel
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.template import Frame, Template
from pyterrier_longdoc.windows import Ragged

GOLDEN = np.load(Path(__file__).parent / "golden" / "socialformer_model.npz")
STATE = {name[6:]: torch.from_numpy(GOLDEN[name]) for name in GOLDEN.files if name.startswith("state/")}
BERT = {
    "vocab_size": 120, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128,
    "max_position_embeddings": 160,
}
TEMPLATE = Template(
    Frame((((2, 0),), ((3, 0),)), (0,)), Frame((((2, 0),), ((3, 0),), ((3, 1),)), (0, 1)), pad=0
)


def published(**settings) -> SocialformerModel:
    return SocialformerModel.from_reference(STATE, BERT, **settings)


def inputs(case: str) -> list[torch.Tensor]:
    names = ("input_ids", "attention_mask", "token_type_ids", "passage_mask")
    return [torch.from_numpy(GOLDEN[f"{case}/{name}"].astype(np.int64)) for name in names]


def tiny(encoder: dict | None = None, **settings) -> SocialformerModel:
    small = {
        "model_type": "bert", **BERT, "hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 32,
        "max_position_embeddings": 600, **(encoder or {}),
    }
    torch.manual_seed(0)
    config = {"passage_tokens": 20, "n_circles": 3, "max_nodes": 12, "sparsity": 0.8, "exchange_hidden": 16}
    config = SocialformerConfig(**{"encoder": small, "template": TEMPLATE, **config, **settings})
    return SocialformerModel(config).eval()


def some_tokens(*lengths: int, seed: int = 0) -> Ragged:
    random = np.random.default_rng(seed)
    return Ragged.from_lists([random.integers(5, 120, length) for length in lengths])


QUERIES = some_tokens(3, 7, 1, seed=9)
DOCUMENTS = some_tokens(90, 0, 1, 2, 41, 200, 130)
PAIRS = np.array([(q, d) for q in range(3) for d in range(7)])


# The published model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["small", "full"])
@pytest.mark.parametrize(("exchange", "name"), [(True, "hierarchical"), (False, "plain")])
def test_published_scores(case, exchange, name):
    model = published(exchange=exchange)
    expected = GOLDEN[f"{case}/score_{name}64"]
    with torch.inference_mode():
        scores = model.score_groups(*inputs(case))
    assert scores.dtype == torch.float32
    assert np.abs(scores.numpy() - expected).max() < 2e-5
    assert np.abs(model.score_groups(*inputs(case)).detach().numpy() - expected).max() < 2e-5  # torch's other path


def test_published_loss_and_gradients():
    model = published()
    loss = functional.cross_entropy(model.score_groups(*inputs("small"))[None], torch.tensor([0]))
    loss.backward()
    assert loss.item() == pytest.approx(GOLDEN["small/listwise_loss"].item(), abs=2e-5)
    parameters = {
        "mlp.weight": model.exchange.mix.weight,
        "embeddings.LayerNorm.weight": model.encoder.embeddings.LayerNorm.weight,
        "passage_transformer.linear1.bias": model.exchange.layer.linear1.bias,
    }
    for name, parameter in parameters.items():
        expected = GOLDEN[f"small/grad/{name}"]
        assert np.abs(parameter.grad.numpy() - expected).max() < 2e-5 * np.abs(expected).max()


def test_groups_that_are_masked_are_never_computed(monkeypatch):
    model, (ids, mask, types, real) = published(), inputs("full")
    computed = []
    layer = model.encoder.encoder.layer[1]  # of the last one only the central tokens are
    layer.register_forward_hook(lambda module, given, output: computed.append(output.shape[:2].numel()))
    real[0, 5:] = 0
    expected = model.score_groups(ids, mask, types, real)
    tokens = mask[real.bool()].sum()
    assert tokens <= sum(computed) <= 1.1 * tokens
    ids[0, 5:], mask[0, 7:] = 99, 0  # whatever they hold
    assert torch.equal(model.score_groups(ids, mask, types, real), expected)


def test_documents_without_groups_have_a_score():
    model, (ids, mask, types, real) = published(), inputs("small")
    expected = model.score_groups(ids, mask, types, real)
    real[1] = 0
    scores = model.score_groups(ids, mask, types, real)
    assert scores[1].item() == STATE["score.bias"].item()  # all features zero
    assert torch.allclose(scores[[0, 2, 3]], expected[[0, 2, 3]], atol=1e-6)
    assert model.score_groups(ids, mask, types, torch.zeros_like(real)).tolist() == [STATE["score.bias"].item()] * 4


def test_score_groups_refuses_what_is_no_group():
    model, (ids, mask, types, real) = published(), inputs("small")
    gap = mask.clone()
    gap[0, 0, 1] = 0
    with pytest.raises(ValueError, match="padding behind them"):
        model.score_groups(ids, gap, types, real)
    with pytest.raises(ValueError, match="central='node'"):
        published(central="node").score_groups(ids, mask, types, real)
    with pytest.raises(ValueError, match="no template"):
        model(QUERIES, DOCUMENTS, PAIRS)


def test_a_published_model_reads_token_ids_too():
    """Its frozen encoder is that of the checkpoint."""
    model = published(template=TEMPLATE, passage_tokens=20, n_circles=3)
    encoders = model.social.centrality.encoder, model.encoder
    frozen, own = (encoder.embeddings.word_embeddings.weight for encoder in encoders)
    assert torch.equal(frozen, own) and torch.equal(own, STATE["embeddings.word_embeddings.weight"])
    assert torch.isfinite(model(QUERIES, DOCUMENTS, PAIRS)).all()


def test_from_reference_refuses_other_checkpoints():
    with pytest.raises(ValueError, match=r"left over \['other'\]"):
        SocialformerModel.from_reference({**STATE, "other": torch.ones(1)}, BERT)
    some = {name: value for name, value in STATE.items() if not name.startswith("mlp")}
    with pytest.raises(ValueError, match="missing .*exchange.mix.weight"):
        SocialformerModel.from_reference(some, BertConfig(**BERT))


# The whole way, against a naive pass ----------------------------------------------------------------------------------


def naive_score(model: SocialformerModel, query: np.ndarray, document: np.ndarray) -> float:
    """One pair, its groups padded to the longest, layers called one after the other."""
    groups = model.social(Ragged.from_lists([query]), Ragged.from_lists([document]), np.array([[0, 0]]))
    rows = [[2, *query, 3, *document[groups.positions[i]], 3] for i in range(len(groups.is_circle))]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    types = torch.tensor([[int(place > len(query) + 1) for place in range(width)] for row in rows])
    bias = torch.zeros(mask.shape).masked_fill(mask == 0, torch.finfo(torch.float32).min)[:, None, None]
    node = model.config.central == "node"
    place = torch.tensor([len(query) + 2 if circle and node else 0 for circle in groups.is_circle])
    every = torch.arange(len(rows))
    hidden = model.encoder.embeddings(input_ids=ids, token_type_ids=types)
    for layer in model.encoder.encoder.layer:
        hidden = layer(hidden, bias).clone()
        central = hidden[every, place]
        hidden[every, place] = model.exchange.mix(torch.cat([central, model.exchange.layer(central[None])[0]], dim=1))
    pooled = torch.tanh(model.pooler(hidden[every, place]))
    return model.head(model.aggregation(pooled[None])).item()


@pytest.mark.parametrize(
    "settings",
    [{}, {"central": "node"}, {"partition": "edge", "aggregation": "mean"}, {"aggregation": "attention"},
     {"aggregation": "transformer", "patterns": ["dynamic_distance"]}, {"n_circles": 0}, {"patterns": []}],
)
def test_scores_of_a_naive_pass(settings):
    model = tiny(**settings)
    with torch.no_grad():
        expected = [naive_score(model, QUERIES[q], DOCUMENTS[d]) for q, d in PAIRS]
        for budget in (10, 300, 10_000):
            scores = model(QUERIES, DOCUMENTS, PAIRS, Budget(budget))
            assert scores.dtype == torch.float32
            assert np.abs(scores.numpy() - expected).max() < 1e-5
        alone = torch.cat([model(QUERIES, DOCUMENTS, pair[None]) for pair in PAIRS])
    assert np.abs(alone.numpy() - expected).max() < 1e-5


def test_gradients_do_not_depend_on_the_budget():
    gradients = []
    for budget in (50, 10_000):
        model = tiny()
        model(QUERIES, DOCUMENTS, PAIRS, Budget(budget)).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        assert all(p.grad is None for p in model.social.parameters())  # frozen
        assert model.exchange.mix.weight.grad.abs().sum() > 0
    assert (gradients[0] - gradients[1]).abs().max() < 1e-4 * gradients[0].abs().max()


def test_no_pairs():
    assert tiny()(QUERIES, DOCUMENTS, np.empty((0, 2), np.int64)).shape == (0,)


def test_the_exchange_carries_what_only_another_group_holds():
    """Without it, a passage cannot know of the others; with it, all pooled states change."""
    first, second = some_tokens(40), some_tokens(40)
    second.values[35] = 4
    for exchange, changed in ((True, 2), (False, 1)):
        model = tiny(n_circles=0, exchange=exchange)
        groups = model.social(QUERIES, first, PAIRS[:1])
        states = [model._read(QUERIES, each, PAIRS[:1], groups, Budget(999)) for each in (first, second)]
        assert ((states[0] - states[1]).abs().max(dim=1).values > 1e-7).sum() == changed


@pytest.mark.parametrize("aggregation", ["max", "mean"])
def test_what_groups_add_makes_the_score(aggregation):
    model = tiny(aggregation=aggregation)
    with torch.inference_mode():
        scores = model(QUERIES, DOCUMENTS, PAIRS) - model.head[-1].bias
        found = list(model.explain(QUERIES, DOCUMENTS, PAIRS, Budget(500)))
    assert [weights.sum() for _, weights in found] == pytest.approx(scores.tolist(), abs=1e-5)
    assert [len(weights) for _, weights in found] == [groups.counts[0] for groups, _ in found]


@pytest.mark.parametrize(
    "encoder",
    [{"model_type": "roberta", "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
     {"model_type": "electra", "embedding_size": 16}, {"model_type": "camembert"}, {"model_type": "ernie"},
     {"model_type": "xlm-roberta"}, {"model_type": "data2vec-text"}],
)
def test_encoders_of_berts_kind(encoder):
    model = tiny(encoder, exchange=False, aggregation="mean", n_circles=0)
    scores = model(QUERIES, DOCUMENTS, PAIRS[:1])
    query, document = QUERIES[0].tolist(), DOCUMENTS[0].tolist()
    pooled = []
    for start in range(0, 90, 20):
        ids = torch.tensor([[2, *query, 3, *document[start : start + 20], 3]])
        types = torch.tensor([[0] * (len(query) + 2) + [1] * (ids.shape[1] - len(query) - 2)])
        given = {} if encoder["model_type"] in ("roberta",) else {"token_type_ids": types}
        first = model.encoder(input_ids=ids, **given).last_hidden_state[:, 0]
        pooled.append(torch.tanh(model.pooler(first)))
    assert scores.item() == pytest.approx(model.head(torch.cat(pooled).mean(0)).item(), abs=1e-5)
    assert torch.isfinite(tiny(encoder)(QUERIES, DOCUMENTS, PAIRS)).all()


def test_an_encoders_own_pooler_is_taken_over():
    torch.manual_seed(3)
    encoder = build_encoder({"model_type": "bert", **BERT}, "pooled")
    weight = encoder.pooler.dense.weight.detach().clone()
    model = SocialformerModel(SocialformerConfig(encoder=encoder_settings(encoder), template=TEMPLATE), encoder)
    assert torch.equal(model.pooler.weight, weight)
    assert model.encoder.pooler is None


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patterns": "random"}, "patterns must be a list of names among static_distance"),
        ({"patterns": ["distance"]}, "patterns must be a list"),
        ({"sparsity": 1.0}, r"sparsity must be in \[0, 1\)"), ({"sparsity": -0.1}, "sparsity"),
        ({"smoothing": "log"}, "smoothing must be one of 'identity', 'sqrt'"),
        ({"partition": "nodes"}, "partition must be one of 'node', 'edge'"),
        ({"passage_tokens": 0}, "passage_tokens must be a whole number of at least 1"),
        ({"n_circles": -1}, "n_circles must be a whole number of at least"),
        ({"max_nodes": 1}, "max_nodes must be a whole number of at least 2"),
        ({"centrality": "bert"}, "centrality must be one of"),
        ({"central": "first"}, "central must be one of 'cls', 'node'"),
        ({"aggregation": "sum"}, "aggregation must be one of 'max', 'mean', 'attention', 'transformer'"),
        ({"seed": 2**64}, "seed must be a number of 64 bits"),
        ({"exchange_hidden": 0}, "exchange_hidden must be a whole number of at least 1"),
        ({"exchange_heads": 0}, "exchange_heads must be a whole number of at least 1"),
        ({"exchange_heads": 5}, "exchange_heads=5 does not divide the encoder's 24 dimensions"),
        ({"encoder": {"model_type": "distilbert", "dim": 24, "hidden_dim": 32, "n_heads": 4}}, "BERT's kind"),
    ],
)
def test_settings_out_of_range(settings, message):
    settings = dict(settings)
    encoder = settings.pop("encoder", None)
    with pytest.raises(ValueError, match=message):
        tiny(encoder, **settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_circles", 2.5), ("n_circles", None), ("max_nodes", "9"), ("passage_tokens", 1.5), ("seed", None),
     ("seed", 0.5), ("sparsity", "0.9"), ("sparsity", None), ("exchange_heads", True), ("exchange", "no")],
)
def test_settings_of_wrong_types(name, value):
    error = TypeError if name in ("sparsity", "exchange") else ValueError
    with pytest.raises(error, match=f"{name} must be .*, got {value!r}"):
        tiny(**{name: value})


def test_a_query_is_never_cut():
    model = tiny({"max_position_embeddings": 40})
    with pytest.raises(ValueError, match="lower passage_tokens and max_nodes: there is room for 7"):
        model(some_tokens(30), DOCUMENTS, np.array([[0, 0]]))


def test_settings_survive_json():
    import json

    config = tiny(patterns=["dynamic_distance", "static_distance"], partition="edge").config
    assert config.patterns == ("static_distance", "dynamic_distance")  # in their own order
    assert SocialformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
