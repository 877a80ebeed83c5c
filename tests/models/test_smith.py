"""SMITH's model: the published code's values, a naive float64 computation of everything, and its settings."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from pyterrier_longdoc.models.encoder import encode_sequences
from pyterrier_longdoc.models.masked_modelling import MaskedModelling
from pyterrier_longdoc.models.smith import SMITHModel, framed_blocks
from pyterrier_longdoc.models.smith_settings import COMBINATIONS, POOLINGS, SMITHConfig
from pyterrier_longdoc.pooling import Budget
from pyterrier_longdoc.text.sentences import Structured
from pyterrier_longdoc.text.template import Frame, Template
from pyterrier_longdoc.windows import Ragged

GOLDEN = np.load(Path(__file__).parent / "golden" / "smith.npz")
STATE = {name.removeprefix("state/"): GOLDEN[name] for name in GOLDEN.files if name.startswith("state/")}
BUDGET = Budget(100)
HEADS, LENGTH, STORED, READ = 4, 16, 6, 5


def inputs(tower):
    """Ids and masks of the blocks that the published code reads, ``[3, 5, 16]``."""
    return tuple(
        torch.from_numpy(GOLDEN[f"in/{name}_{tower}"]).view(3, STORED, LENGTH)[:, :READ]
        for name in ("input_ids", "input_mask")
    )


# A naive computation, one block at a time, in float64 -----------------------------------------------------------------


class Naive:
    """SMITH from its TensorFlow variables by the formulas of the paper and of the published code."""

    def __init__(self, variables):
        self.variables = {name: np.float64(value) for name, value in variables.items()}

    def dense(self, x, name):
        return x @ self.variables[f"{name}/kernel"] + self.variables[f"{name}/bias"]

    def norm(self, x, name):
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return scaled * self.variables[f"{name}/LayerNorm/gamma"] + self.variables[f"{name}/LayerNorm/beta"]

    def transformer(self, x, scope, layers=2):
        for number in range(layers):
            name = f"{scope}/layer_{number}"
            q, k, v = (self.dense(x, f"{name}/attention/self/{part}") for part in ("query", "key", "value"))
            heads = []
            for part in np.split(np.arange(x.shape[1]), HEADS):
                scores = q[:, part] @ k[:, part].T / math.sqrt(len(part))
                weights = np.exp(scores - scores.max(1, keepdims=True))
                heads.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
            attended = self.dense(np.concatenate(heads, axis=1), f"{name}/attention/output/dense")
            x = self.norm(x + attended, f"{name}/attention/output")
            hidden = gelu(self.dense(x, f"{name}/intermediate/dense"))
            x = self.norm(x + self.dense(hidden, f"{name}/output/dense"), f"{name}/output")
        return x

    def block(self, ids):
        tables = self.variables
        x = tables["bert/embeddings/word_embeddings"][ids] + tables["bert/embeddings/token_type_embeddings"][0]
        x = self.norm(x + tables["bert/embeddings/position_embeddings"][: len(ids)], "bert/embeddings")
        first = self.transformer(x, "bert/encoder")[0]
        pooled = np.tanh(self.dense(first, "bert/pooler/dense"))
        return normalized(relu(self.dense(pooled, "seq_rep_from_bert_sent_dense/dense")))

    def document(self, blocks, tower, combine):
        h = np.stack([self.block(ids) for ids in blocks])
        positions = self.variables["doc_bert/doc_embeddings/position_embeddings"][: len(h)]
        x = self.transformer(self.norm(h + positions, "doc_bert/doc_embeddings"), "doc_bert/doc_encoder")
        pooled = np.tanh(self.dense(x[0], "doc_bert/doc_pooler/dense"))
        last = "dense" if tower == 1 else "dense_1"
        r = normalized(relu(self.dense(pooled, f"seq_rep_from_bert_doc_dense/{last}")))
        if combine == "normal":
            return r
        attention = "combine_reps_attention"
        logits = np.tanh(self.dense(h, f"{attention}/dense")) @ self.variables[f"{attention}/context_vector"]
        summary = {
            "sum_concat": h.sum(0),
            "mean_concat": h.mean(0),
            "attention": (np.exp(logits) / np.exp(logits).sum()) @ h,
        }[combine]
        return normalized(np.concatenate([summary, r]))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu(x):
    return np.maximum(x, 0)


def normalized(x):
    return x / np.linalg.norm(x)


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("tower", [1, 2])
def test_every_combination_equals_a_naive_computation(combine, tower):
    model, naive = SMITHModel.from_tf_variables(STATE, heads=HEADS, combine=combine), Naive(STATE)
    ids, mask = inputs(tower)
    with torch.inference_mode():
        vectors = model.encode_blocks(ids, mask, tower=tower).numpy()
    for row, vector in enumerate(vectors):
        blocks = [block[real > 0].numpy() for block, real in zip(ids[row], mask[row], strict=True) if real.any()]
        expected = naive.document(blocks, tower, combine)
        np.testing.assert_allclose(vector, expected, atol=2e-6)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


# The published code's values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [Budget(1), Budget(40), Budget(2_000)])
def test_matching_of_the_published_code(budget):
    model = SMITHModel.from_tf_variables(STATE, heads=HEADS)
    with torch.inference_mode():
        vectors = [model.encode_blocks(*inputs(tower), tower=tower, budget=budget) for tower in (1, 2)]
        logits = model.scale * (vectors[0] * vectors[1]).sum(1) + model.bias
        labels = torch.from_numpy(GOLDEN["in/documents_match_labels"])
        loss = functional.binary_cross_entropy_with_logits(logits, labels)
    for tower in (1, 2):
        np.testing.assert_allclose(vectors[tower - 1], GOLDEN[f"finetune_normal/doc_emb_{tower}"], atol=1e-6)
    np.testing.assert_allclose(logits, GOLDEN["finetune_normal/siamese_logits"], atol=1e-5)
    assert loss.item() == pytest.approx(GOLDEN["finetune_normal/siamese_loss"].item(), abs=2e-5)


def test_block_vectors_of_the_published_code():
    model = SMITHModel.from_tf_variables(STATE, heads=HEADS)
    ids, mask = inputs(1)
    sequences, rows = framed_blocks(ids, mask)
    with torch.inference_mode():
        vectors = model.encode_sentences(sequences, BUDGET)
        states = model.document_level.contextualize(vectors, rows, BUDGET)
    real = mask.any(2)
    assert len(vectors) == real.sum() < real.numel()  # padding blocks are not computed
    np.testing.assert_allclose(vectors, GOLDEN["finetune_normal/input_sent_reps_1"][real], atol=1e-6)
    np.testing.assert_allclose(states[real], GOLDEN["finetune_normal/output_sent_reps_1"][real], atol=1e-5)


def test_joint_training_of_the_published_code():
    model = SMITHModel.from_tf_variables(STATE, heads=HEADS)
    with torch.inference_mode():
        vectors = [
            model.encode_blocks(*inputs(tower), tower=tower, masked_blocks=GOLDEN[f"joint_msl/masked_index_{tower}"])
            for tower in (1, 2)
        ]
    for tower in (1, 2):
        np.testing.assert_allclose(vectors[tower - 1], GOLDEN[f"joint_msl/doc_emb_{tower}"], atol=1e-5)
    logits = (model.scale * (vectors[0] * vectors[1]).sum(1)).detach()
    np.testing.assert_allclose(logits, GOLDEN["joint_msl/siamese_logits"], atol=1e-5)


@pytest.mark.parametrize("tower", [1, 2])
def test_masked_words_of_the_published_code(tower):
    model = SMITHModel.from_tf_variables(STATE, heads=HEADS)
    real = GOLDEN[f"in/masked_lm_weights_{tower}"].reshape(3, STORED, 3)[:, :READ] > 0
    place = GOLDEN[f"in/masked_lm_positions_{tower}"].reshape(3, STORED, 3)[:, :READ][real] % (STORED * LENGTH)
    words = GOLDEN[f"in/masked_lm_ids_{tower}"].reshape(3, STORED, 3)[:, :READ][real]
    document = np.nonzero(real)[0]
    sequences, rows = framed_blocks(*inputs(tower))
    with torch.inference_mode():
        hidden = encode_sequences(model.encoder, sequences, BUDGET, all_states)
        row = rows.offsets[document] + place // LENGTH
        losses, _ = MaskedModelling(model).predict_words(hidden[row, place % LENGTH], torch.from_numpy(words).long())
    expected = GOLDEN[f"joint_msl/mlm_example_loss_{tower}"].reshape(3, 3, READ).transpose(0, 2, 1)
    assert len(losses) == GOLDEN[f"joint_msl/mlm_weights_{tower}"].sum()
    np.testing.assert_allclose(losses, expected[real], atol=2e-5)


def all_states(output, items):
    states = output.last_hidden_state
    return functional.pad(states, (0, 0, 0, LENGTH - states.shape[1]))


@pytest.mark.parametrize("tower", [1, 2])
def test_masked_blocks_of_the_published_code(tower):
    """It predicts padding blocks too, and adds a bias to each slot of the batch; both are left out here."""
    heads = SMITHModel.from_tf_variables(STATE, heads=HEADS).masked_heads
    slot = np.arange(3)[:, None], GOLDEN[f"joint_msl/masked_index_{tower}"]
    states, truth = (
        torch.from_numpy(GOLDEN[f"joint_msl/{name}_sent_reps_{tower}"][slot].reshape(6, -1))
        for name in ("output", "input")
    )
    with torch.inference_mode():
        similarity = heads.blocks(states) @ truth.T + torch.from_numpy(STATE["cls/sent_predictions/output_bias"])
    np.testing.assert_allclose(similarity.log_softmax(1), GOLDEN[f"joint_msl/msent_logprobs_{tower}"], atol=2e-5)


def test_masked_block_loss_is_eq_5(make_model):
    model = make_model(masked_heads=True)
    torch.manual_seed(0)
    vectors, rows = functional.normalize(torch.randn(7, 16), dim=1), Ragged.from_lists([[0, 1, 2, 3], [4, 5, 6]])
    masked = np.array([1, 3, 4])
    with torch.inference_mode():
        losses, right = MaskedModelling(model).predict_blocks(vectors, rows, masked, BUDGET)
        shown = vectors.clone()
        shown[masked] = model.masked_heads.block_mask
        alone = [
            model.document_level.contextualize(part, Ragged.from_lists([range(len(part))]), BUDGET)[0]
            for part in (shown[:4], shown[4:])
        ]
        states = torch.cat(alone)
        predicted = model.masked_heads.blocks(states[masked])
    for number, block in enumerate(masked):
        similar = [float(predicted[number] @ vectors[other]) for other in masked]
        expected = math.log(sum(map(math.exp, similar))) - similar[number]
        assert losses[number].item() == pytest.approx(expected, abs=1e-5), block
        assert right[number] == (max(similar) == similar[number])


def test_variables_of_something_else_raise():
    with pytest.raises(ValueError, match="no variable 'doc_bert/doc_embeddings/position_embeddings'"):
        SMITHModel.from_tf_variables({name: value for name, value in STATE.items() if "doc_embeddings/pos" not in name})
    wrong = {**STATE, "bert/pooler/dense/bias": np.zeros(7)}
    with pytest.raises(ValueError, match="not those of one SMITH model"):
        SMITHModel.from_tf_variables(wrong, heads=HEADS)


def test_variables_by_tensor_name_and_without_heads():
    kept = {f"{name}:0": value for name, value in STATE.items() if not name.startswith(("cls", "mask", "combine"))}
    model = SMITHModel.from_tf_variables({**kept, "global_step:0": np.int64(7)}, heads=HEADS)
    assert model.masked_heads is None
    with torch.inference_mode():
        np.testing.assert_allclose(model.encode_blocks(*inputs(1)), GOLDEN["finetune_normal/doc_emb_1"], atol=1e-6)
    with pytest.raises(ValueError, match="no vector of masked blocks"):
        model.encode_blocks(*inputs(1), masked_blocks=torch.zeros(3, 1))


# Blocks that are framed already ---------------------------------------------------------------------------------------


def test_padding_changes_nothing():
    model = SMITHModel.from_tf_variables(STATE, heads=HEADS)
    ids, mask = inputs(1)
    with torch.inference_mode():
        expected = model.encode_blocks(ids, mask)
        wider = [functional.pad(each, (0, 3, 0, 4)) for each in (ids, mask)]
        torch.testing.assert_close(model.encode_blocks(*wider), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(model.encode_blocks(ids[2:], mask[2:]), expected[2:], atol=1e-6, rtol=0)
        torch.testing.assert_close(model.encode_blocks(ids.masked_fill(mask == 0, 9), mask), expected, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("place", "message"),
    [((0, 1, 0), "attention_mask has a gap"), ((0, 1), "has a gap"), ((1,), "document 1 has no block with a token")],
)
def test_masks_that_cannot_be_raise(place, message):
    model = SMITHModel.from_tf_variables(STATE, heads=HEADS)
    ids, mask = inputs(1)
    mask = mask.clone()
    mask[place] = 0
    with pytest.raises(ValueError, match=message):
        model.encode_blocks(ids, mask)


def test_towers_are_one_or_two():
    with pytest.raises(ValueError, match="tower must be 1 or 2, got 0"):
        SMITHModel.from_tf_variables(STATE, heads=HEADS).encode_blocks(*inputs(1), tower=0)


# Documents ------------------------------------------------------------------------------------------------------------

FRAME = Frame((((1, 0),), ((2, 0),)), (0,))


@pytest.fixture
def make_model():
    def make(**settings):
        encoder = {
            "model_type": "bert", "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 24, "max_position_embeddings": 12, "initializer_range": 0.4,
        }
        torch.manual_seed(0)
        chosen = {"block_length": 10, "max_blocks": 6, "layers": 1, "heads": 2, "feedforward": 24, **settings}
        model = SMITHModel(SMITHConfig(encoder, Template(FRAME, FRAME, 0), **chosen)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        return model

    return make


def documents(*sentences):
    """Documents of sentences of so many tokens."""
    rng = np.random.default_rng(5)
    tokens = Ragged.from_lists([rng.integers(3, 50, sum(lengths)) for lengths in sentences])
    begins = np.zeros(len(tokens.values), np.int8)
    for start, lengths in zip(tokens.offsets[:-1], sentences, strict=True):
        begins[start + np.cumsum([0, *lengths])[:-1][: len(lengths)]] = 1
    return Structured(tokens.values, tokens.offsets, begins)


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_a_document_is_its_framed_blocks(make_model, combine):
    model, texts = make_model(combine=combine), documents([3, 4, 2, 11], [8], [2, 2])
    blocks = [[(0, 7), (7, 9), (9, 17), (17, 20)], [(0, 8)], [(0, 4)]]
    ids, mask = torch.zeros(3, 4, 10, dtype=torch.long), torch.zeros(3, 4, 10, dtype=torch.long)
    for number, spans in enumerate(blocks):
        for block, (start, end) in enumerate(spans):
            framed = [1, *texts[number][start:end].tolist(), 2]
            ids[number, block, : len(framed)], mask[number, block, : len(framed)] = torch.tensor(framed), 1
    with torch.inference_mode():
        expected = model.encode_blocks(ids, mask)
        for budget in (Budget(1), Budget(25), Budget(1_000)):
            torch.testing.assert_close(model.encode_documents(texts, budget), expected, atol=2e-6, rtol=0)
    assert expected.shape == (3, model.dims) == (3, 16 if combine == "normal" else 32)
    torch.testing.assert_close(expected.norm(dim=1), torch.ones(3))


def test_mean_pooling_is_over_real_tokens(make_model):
    model, text = make_model(pooling="mean"), documents([8, 2])
    with torch.inference_mode():
        sequences = model.config.template.windows(text, model.blocks(text))
        vectors = model.encode_sentences(sequences, BUDGET)
        for number, vector in enumerate(vectors):
            states = model.encoder(input_ids=torch.from_numpy(sequences.ids[number]).long()[None]).last_hidden_state[0]
            expected = functional.normalize(model.sentence_dense(states.mean(0)), dim=0)
            torch.testing.assert_close(vector, expected, atol=1e-6, rtol=0)


def test_an_empty_document_is_an_empty_block(make_model):
    model = make_model()
    with torch.inference_mode():
        vectors = model.encode_documents(documents([], [3], []), BUDGET)
        expected = model.encode_blocks(torch.tensor([[[1, 2]]]), torch.ones(1, 1, 2))
    torch.testing.assert_close(vectors[[0, 2]], expected.expand(2, -1), atol=1e-6, rtol=0)
    assert not torch.allclose(vectors[0], vectors[1])


def test_without_marks_a_document_is_one_sentence(make_model):
    model, texts = make_model(), documents([20])
    with torch.inference_mode():
        plain = model.encode_documents(Ragged(texts.values, texts.offsets), BUDGET)
        assert torch.equal(plain, model.encode_documents(texts, BUDGET))
        assert not torch.allclose(plain, model.encode_documents(documents([6, 6, 8]), BUDGET))


def test_too_many_blocks_raise(make_model):
    with pytest.raises(ValueError, match="a document has 7 blocks, but the model reads max_blocks=6"):
        make_model().encode_documents(documents([49]), BUDGET)


def test_scores_are_cosines_and_in_training_logits(make_model):
    model, texts = make_model(dropout=0.0), documents([5], [7, 3], [9])
    model.encoder.config.hidden_dropout_prob = 0.0
    pairs = np.array([[0, 1], [2, 0]])
    with torch.inference_mode():
        vectors = model.encode_documents(texts, BUDGET)
        cosines = model(texts, texts, pairs, BUDGET)
    torch.testing.assert_close(cosines, (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(1))
    with torch.no_grad():
        model.scale.fill_(5.0)
        model.bias.fill_(-1.0)
    for module in model.modules():
        module.training = module is model
    torch.testing.assert_close(model(texts, texts, pairs, BUDGET), 5 * cosines - 1, atol=1e-5, rtol=0)


def test_two_towers_differ_in_the_last_dense(make_model):
    texts = documents([5], [7, 3])
    for two_towers in (False, True):
        model = make_model(two_towers=two_towers)
        with torch.inference_mode():
            same = torch.equal(model.encode_queries(texts, BUDGET), model.encode_documents(texts, BUDGET))
        assert same != two_towers


def test_occluded_documents_are_those_without_a_block(make_model):
    """The other blocks keep their positions."""
    model, text = make_model(), documents([8, 8, 8])
    with torch.inference_mode():
        windows, without = model.occluded(text, BUDGET)
        ends = documents([16]).head(np.array([16]))
        ends = Structured(text.values[:16], ends.offsets, text.begins[:16])
        torch.testing.assert_close(without[2:], model.encode_documents(ends, BUDGET), atol=2e-6, rtol=0)
        assert not torch.allclose(without[0], without[2], atol=1e-3)
        alone, empty = model.occluded(documents([3]), BUDGET)
        assert torch.equal(empty, model.encode_documents(documents([]), BUDGET))
    assert (len(windows), len(alone)) == (3, 1)


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradients_reach_all_parameters(make_model, combine, pooling):
    model = make_model(combine=combine, pooling=pooling)
    model.train()
    texts = documents([5, 9, 9], [7, 3])
    model(texts, texts, np.array([[0, 1], [1, 0], [0, 0]]), Budget(30)).square().sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"combine": "max"}, "combine must be one of 'normal', 'sum_concat', 'mean_concat', 'attention', got 'max'"),
        ({"pooling": "cls"}, "pooling must be one of 'pooler', 'mean', got 'cls'"),
        ({"block_length": 2}, "block_length=2 leaves no room"),
        ({"block_length": 13}, "block_length=13 is more than the encoder's 12 positions"),
        ({"heads": 3}, "heads=3 does not divide the encoder's width of 16"),
        ({"activation": "relu"}, "activation must be 'gelu' or 'gelu_pytorch_tanh', got 'relu'"),
        ({"splitting": "none"}, "splitting must be one of"),
        ({"layers": 0}, "layers must be a whole number of at least 1, got 0"),
        ({"heads": 0}, "heads must be a whole number of at least 1"),
        ({"max_blocks": 2.5}, "max_blocks must be a whole number of at least 1, got 2.5"),
        ({"block_length": True}, "block_length must be a whole number of at least 1, got True"),
        ({"attention_width": 0, "combine": "attention"}, "attention_width must be"),
        ({"dropout": 1.0}, "dropout must be from 0 to under 1, got 1.0"),
    ],
)
def test_bad_settings(make_model, settings, message):
    with pytest.raises(ValueError, match=message):
        make_model(**settings)


def test_settings_travel_as_json(make_model):
    config = make_model(combine="attention", masked_heads=True).config
    assert SMITHConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.vocabulary == 50
