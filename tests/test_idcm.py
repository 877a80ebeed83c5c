"""IDCM as a transformer: published checkpoints, the work saved, what was read."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import pyterrier_longdoc as longdoc
import tests.models.test_idcm as oracle
from tests.conftest import as_frame, shake, words


@pytest.fixture
def published(tiny, tmp_path):
    """A directory as the authors publish: their names of parameters, and the name of the encoder it was made of."""
    from transformers import AutoModel, AutoTokenizer, DistilBertConfig, DistilBertModel

    base, directory = tmp_path / "distilbert", tmp_path / "idcm"
    vocabulary = AutoModel.from_pretrained(tiny.encoder).config.vocab_size
    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=vocabulary, dim=24, n_layers=2, n_heads=4, hidden_dim=32)
    encoder = DistilBertModel(config).eval()
    encoder.save_pretrained(base)
    AutoTokenizer.from_pretrained(tiny.encoder).save_pretrained(base)
    state = oracle.published_state(encoder)
    directory.mkdir()
    save_file({name: tensor.contiguous().clone() for name, tensor in state.items()}, directory / "model.safetensors")
    settings = {"bert_model": str(base), "sample_n": 4, "sample_context": "ck", "top_k_chunks": 3, "chunk_size": 50}
    (directory / "config.json").write_text(json.dumps({**settings, "overlap": 7, "model_type": "IDCM"}))
    return directory, encoder, state


def test_a_published_checkpoint(published, tmp_path):
    directory, encoder, state = published
    ranker = longdoc.IDCM.from_published(str(directory), text_field="body")
    text = words(np.random.default_rng(0), 150)
    frame = as_frame(("1", "w1 w70 w3", "d", text)).rename(columns={"text": "body"})
    ids = [ranker.tokenizer.encode(each, add_special_tokens=False) for each in ("w1 w70 w3", text)]
    special = {"CLS": ranker.tokenizer.cls_token_id, "SEP": ranker.tokenizer.sep_token_id}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in special.items():
            patch.setattr(oracle, name, value)
        expected, _ = oracle.published_score(encoder, state, *ids)
    out = ranker(frame)
    assert out["score"].item() == pytest.approx(expected, rel=2e-5, abs=2e-5)
    ranker.save(tmp_path / "own")  # from here on in the package's own form
    assert longdoc.IDCM.from_pretrained(tmp_path / "own")(frame)["score"].item() == out["score"].item()
    explained = ranker.explain(frame).frame
    assert explained["weight"].sum() == pytest.approx(expected, abs=1e-4)


def test_weights_of_the_older_format_are_read_as_tensors_only(published):
    directory, _, state = published
    (directory / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"neither model.safetensors nor pytorch_model.bin"):
        longdoc.IDCM.from_published(directory)
    torch.save(state, directory / "pytorch_model.bin")
    assert longdoc.IDCM.from_published(directory).model.config.published
    torch.save({"mu": print}, directory / "pytorch_model.bin")  # an object that a pickle would import
    with pytest.raises(Exception, match="(?i)weights.only|unsupported"):
        longdoc.IDCM.from_published(directory)


def test_what_is_no_published_checkpoint(tiny, tmp_path):
    with pytest.raises(ValueError, match=r"no published checkpoint of IDCM: .*bert_model"):
        longdoc.IDCM.from_published(tiny.encoder)
    with pytest.raises(ValueError, match="neither a directory nor a hub name"):
        longdoc.IDCM.from_published(tmp_path / "nothing" / "here")


def test_the_work_saved_is_said(tiny):
    ranker = longdoc.IDCM(tiny.encoder, passage_tokens=10, overlap=2, max_passages=3)
    texts = ["", " ".join(["w1"] * 10), " ".join(["w1"] * 30), " ".join(["w1"] * 31), " ".join(["w1"] * 60)]
    out = ranker(as_frame(*(("1", "w2", f"d{n}", text) for n, text in enumerate(texts))))
    assert out["passages_read"].tolist() == [1, 1, 1, 0.75, 0.5]
    assert list(out.columns)[-2:] == ["passages_read", "rank"]


def test_what_was_read_is_explained(tiny):
    ranker = shake(longdoc.IDCM(tiny.encoder, passage_tokens=10, overlap=2, max_passages=4))
    frame = as_frame(("1", "w2 w5", "d", words(np.random.default_rng(1), 200)))
    windows = ranker.explain(frame).frame
    assert len(windows) == 4
    assert (windows["weight"] == 0).sum() == 1
    assert windows["weight"].sum() == pytest.approx(ranker(frame)["score"].item(), abs=1e-5)
    assert (windows["kind"] == "passage").all()


def test_an_untrained_selector_finds_the_words_of_a_query():
    """Over a real encoder's embeddings, wherever they stand: three-word matches count from the start."""
    ranker = longdoc.IDCM(max_passages=1)
    filler = ("the weather was fine and everybody went out for a long walk along the river that day . " * 15).split()
    for place in (25, 110, 215):
        text = " ".join([*filler[:place], "binary search tree insertion", *filler[place:]])
        found = ranker.explain(as_frame(("1", "binary search tree insertion", "d", text))).frame["text"].item()
        assert "binary search tree" in found


@pytest.mark.parametrize("form", ["own", "published"])
def test_titles_are_read_by_the_encoder_and_left_out_by_the_selector(tiny, published, form):
    if form == "own":
        ranker = shake(longdoc.IDCM(tiny.encoder, passage_tokens=10, overlap=2, max_passages=2, title_field="title"))
    else:
        ranker = longdoc.IDCM.from_published(published[0], title_field="title")
    text = words(np.random.default_rng(2), 300)
    frame = as_frame(*(("1", "w2 w5", f"d{n}", text) for n in range(3))).assign(title=["w7 w8", "w9", None])
    scores = ranker(frame)["score"].to_numpy()
    assert len(np.unique(scores.round(5))) == 3
    windows = ranker.explain(frame).frame
    assert windows["text"].iloc[: len(windows) // 3].tolist() == windows["text"].iloc[-(len(windows) // 3) :].tolist()
    ranker.title_field = None
    assert ranker(frame)["score"].iloc[0] == pytest.approx(scores[2], abs=1e-5)
