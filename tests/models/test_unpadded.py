"""ModernBERT without padding gives what it gives with padding; here with the GPU's kernel spelled out."""

import pickle

import pytest
import torch
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertForSequenceClassification, ModernBertModel

from pyterrier_longdoc.models import unpadded

LENGTHS = [40, 1, 17, 33]


def spelled_out(query, key, value, offsets, longest, scale, reach):
    """One sequence after the other, one token after the other."""
    assert longest >= offsets.diff().max()
    out = torch.empty_like(query)
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        for token in range(start, end):
            first, last = (start, end) if reach < 0 else (max(start, token - reach), min(end, token + reach + 1))
            weights = (torch.einsum("hd,nhd->hn", query[token], key[first:last]) * scale).softmax(1)
            out[token] = torch.einsum("hn,nhd->hd", weights, value[first:last])
    return out


@pytest.fixture
def calls(monkeypatch):
    """This machine attends unpadded; gives the number of tokens of each call."""
    found = []

    def attend(query, *rest):
        found.append(len(query))
        return spelled_out(query, *rest)

    monkeypatch.setattr(unpadded, "attend", attend)
    monkeypatch.setattr(unpadded, "attends_unpadded", lambda device: True)
    return found


def modernbert(kind=ModernBertModel, **options):
    torch.manual_seed(0)
    ends = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    config = ModernBertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=4, num_attention_heads=3, intermediate_size=32,
        local_attention=8, global_attn_every_n_layers=2, initializer_range=0.5, **ends, **options,
    )
    return kind(config).eval()


def batch(lengths):
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(3, 50, mask.shape, generator=torch.Generator().manual_seed(1)) * mask
    return ids, mask.long()


def test_the_same_hidden_states(calls):
    plain, changed = modernbert(), modernbert()
    unpadded.unpad(changed)
    ids, mask = batch(LENGTHS)
    with torch.no_grad():
        expected, found = (model(ids, attention_mask=mask).last_hidden_state for model in (plain, changed))
    assert calls == [sum(LENGTHS)] * 4  # a layer each, no padding in any
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], rtol=1e-4, atol=1e-4)
    assert not found[~mask.bool()].any()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_classifiers(calls, pooling):
    options = {"num_labels": 1, "classifier_pooling": pooling}
    plain, changed = (modernbert(ModernBertForSequenceClassification, **options) for _ in range(2))
    unpadded.unpad(changed)
    for lengths in (LENGTHS, [12, 12]):
        ids, mask = batch(lengths)
        given = {} if len(set(lengths)) == 1 else {"attention_mask": mask}
        torch.testing.assert_close(changed(ids, **given).logits, plain(ids, **given).logits, rtol=1e-4, atol=1e-4)
    assert calls == [sum(LENGTHS)] * 4 + [24] * 4


def test_gradients_flow(calls):
    plain, changed = modernbert(), modernbert()
    unpadded.unpad(changed)
    ids, mask = batch(LENGTHS)
    for model in (plain, changed):
        model(ids, attention_mask=mask).last_hidden_state[:, 0].square().sum().backward()
    for expected, found in zip(plain.parameters(), changed.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-3, atol=1e-3)


def test_where_the_device_cannot_nothing_changes(monkeypatch):
    monkeypatch.setattr(unpadded, "attend", None)
    plain, changed = modernbert(), modernbert()
    unpadded.unpad(changed)
    assert changed.state_dict().keys() == plain.state_dict().keys()
    assert "longdoc" not in changed.config.to_json_string(use_diff=False)
    ids, mask = batch(LENGTHS)
    with torch.no_grad():
        expected = plain(ids, attention_mask=mask).last_hidden_state
        assert torch.equal(changed(ids, attention_mask=mask).last_hidden_state, expected)
        assert torch.equal(pickle.loads(pickle.dumps(changed))(ids, attention_mask=mask).last_hidden_state, expected)


def test_dropout_of_attention_is_not_left_out(calls):
    changed = modernbert(attention_dropout=0.5)
    unpadded.unpad(changed)
    changed.train()(batch([5, 3])[0])
    assert not calls
    changed.eval()(batch([5, 3])[0])
    assert calls


def test_other_encoders_stay_as_they_are():
    bert = BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
    unpadded.unpad(bert)
    assert type(bert) is BertModel


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_cpu_has_no_such_attention(dtype):
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        assert not unpadded.attends_unpadded(torch.device("cpu"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    plain, changed = (modernbert().cuda() for _ in range(2))
    unpadded.unpad(changed)
    ids, mask = (tensor.cuda() for tensor in batch(LENGTHS))
    with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
        expected, found = (model(ids, attention_mask=mask).last_hidden_state for model in (plain, changed))
    torch.testing.assert_close(found[mask.bool()].float(), expected[mask.bool()].float(), rtol=0.1, atol=0.1)
