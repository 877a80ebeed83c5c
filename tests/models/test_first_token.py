"""A last layer of one token gives the vector and the gradients of the whole one."""

import copy
import pickle

import pytest
import torch

from pyterrier_longdoc.models.encoder import build_encoder, encode_sequences, first_token
from pyterrier_longdoc.models.first_token import read_first_token_only
from pyterrier_longdoc.pooling import Budget
from tests.models.test_encoder import SETTINGS, SMALL, built, logits, sequences_of

BERT_LIKE = {
    **{name: SETTINGS[name] for name in ("bert", "roberta", "electra")},
    **{name: {**SMALL, "max_position_embeddings": 42, "pad_token_id": 1} for name in ("xlm-roberta", "camembert")},
}


def twins(model_type, kind="base", **changes):
    torch.manual_seed(0)
    settings = {"model_type": model_type, **BERT_LIKE.get(model_type, SETTINGS.get(model_type)), **changes}
    whole = build_encoder(settings, kind).eval()
    short = copy.deepcopy(whole)
    read_first_token_only(short)
    return whole, short


@pytest.mark.parametrize("model_type", BERT_LIKE)
@pytest.mark.parametrize("kind", ["base", "classifier"])
@pytest.mark.parametrize("lengths", [[9, 9, 9], [3, 17, 30, 1]])
def test_the_same_vectors_and_gradients(model_type, kind, lengths):
    pick = first_token if kind == "base" else logits
    results = []
    for encoder in twins(model_type, kind):
        out = encode_sequences(encoder, sequences_of(lengths), Budget(99), pick)
        out.square().sum().backward()
        results.append((out, [parameter.grad for parameter in encoder.parameters()]))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-6, rtol=1e-5)
    for first, second in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-4)


def test_only_one_token_is_computed():
    _, short = twins("bert")
    sizes = []
    short.encoder.layer[-1].intermediate.register_forward_hook(lambda module, args, out: sizes.append(out.shape))
    encode_sequences(short, sequences_of([9, 9]), Budget(99))
    assert sizes == [(2, 1, 20)]


def test_dropout_in_training():
    _, short = twins("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    short.encoder.layer[-1].train()
    first, second = (encode_sequences(short, sequences_of([20]), Budget(99)) for _ in range(2))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("model_type", ["deberta-v2", "distilbert", "modernbert"])
def test_other_encoders_stay_as_they_are(model_type):
    encoder = built(model_type)
    read_first_token_only(encoder)
    with torch.inference_mode():
        assert encoder(torch.tensor([[2, 5, 6, 3]])).last_hidden_state.shape == (1, 4, 16)


def test_names_copies_and_pickles():
    whole, short = twins("bert")
    assert short.state_dict().keys() == whole.state_dict().keys()
    sequences = sequences_of([5, 6])
    expected = encode_sequences(short, sequences, Budget(99))
    for other in (copy.deepcopy(short), pickle.loads(pickle.dumps(short))):
        assert type(other.encoder.layer[-1]) is type(short.encoder.layer[-1])
        assert torch.equal(encode_sequences(other, sequences, Budget(99)), expected)
    read_first_token_only(short)  # a second time changes nothing
    assert torch.equal(encode_sequences(short, sequences, Budget(99)), expected)
