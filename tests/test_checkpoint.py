"""Saving and loading: the same scores bit for bit, or a clear error; never a half-loaded model."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.checkpoint import fingerprint, write_directory
from tests.conftest import shake


@pytest.fixture
def saved(make_ranker, tmp_path) -> Path:
    make_ranker().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def tkl(tiny, tmp_path) -> Path:
    shake(longdoc.TKL(tiny.words, heads=4)).save(tmp_path / "tkl")
    return tmp_path / "tkl"


def test_the_same_scores_bit_for_bit(make_ranker, saved, small):
    ranker = make_ranker()
    for loader in (type(ranker), longdoc.ReRanker):
        loaded = loader.from_pretrained(str(saved))
        assert type(loaded) is type(ranker)
        assert list(loaded(small)["score"]) == list(ranker(small)["score"])
        assert loaded.model.config == ranker.model.config
        for name, tensor in ranker.model.state_dict().items():
            assert torch.equal(loaded.model.state_dict()[name], tensor), name
    assert not loaded.model.training


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MaxP", {"passage_tokens": np.int64(60), "overlap": np.int32(10)}),
        ("KMaxP", {"k": np.int64(2)}),
        ("HAN", {"hidden": np.int64(6)}),
        ("SMITH", {"layers": np.int64(1), "max_blocks": np.int64(9)}),
        ("CoLDE", {"chunk_tokens": np.int64(40), "dims": np.int64(8), "hidden": np.int64(6), "sections": np.int64(2)}),
        ("Longformer", {"attention_window": np.int64(16), "positions": np.int64(128)}),
        ("BigBird", {"block_size": np.int64(8), "positions": np.int64(128)}),
        ("KNRM", {"centres": np.array([1.0, 0.5, -0.5])}),
        ("TKL", {"peaks": np.int64(2), "heads": np.int64(4)}),
        ("Socialformer", {"n_circles": np.int32(2), "sparsity": np.float32(0.5)}),
    ],
)
def test_numbers_of_numpy_are_as_good_as_plain_ones(tiny, name, options, small, tmp_path):
    source = tiny.words if name in ("HAN", "KNRM", "TKL") else tiny.encoder
    sizes = {"heads": 4, "feedforward": 32, "block_length": 20} if name == "SMITH" else {}
    plain = {key: value.tolist() for key, value in options.items()}
    rankers = [getattr(longdoc, name)(source, **sizes, **each, max_doc_tokens=60) for each in (options, plain)]
    rankers[0].save(tmp_path / "model")
    rankers.append(longdoc.ReRanker.from_pretrained(tmp_path / "model"))
    assert len({ranker.weights_id() for ranker in rankers}) == 1
    scores = [list(ranker(small)["score"]) for ranker in rankers]
    assert scores[0] == scores[1] == scores[2]


def test_sizes_of_a_smith_from_nothing_may_be_of_numpy(small):
    sizes = {"width": 16, "sentence_layers": 1, "sentence_heads": 2, "sentence_feedforward": 32, "block_length": 20}
    options = {"layers": 1, "heads": 4, "feedforward": 32}
    of_numpy = longdoc.SMITH(**{name: np.int64(value) for name, value in (sizes | options).items()})
    assert of_numpy.weights_id() == longdoc.SMITH(**sizes, **options).weights_id()


def test_a_loaded_ranker_keeps_its_name(make_ranker, saved):
    """The path that it was loaded from is nobody's business, least of all a model card's."""
    assert longdoc.ReRanker.from_pretrained(saved).model_name == make_ranker().model_name


def test_saved_twice(make_ranker, saved, small, tmp_path):
    """What was loaded can be saved and loaded again."""
    longdoc.ReRanker.from_pretrained(saved).save(tmp_path / "again")
    again = longdoc.ReRanker.from_pretrained(tmp_path / "again")
    assert list(again(small)["score"]) == list(make_ranker()(small)["score"])


def test_options_are_saved_and_can_be_replaced(make_ranker, tmp_path):
    ranker = make_ranker(text_field="body", max_doc_tokens=33)
    ranker.save(tmp_path / "model")
    loaded = type(ranker).from_pretrained(tmp_path / "model")
    assert (loaded.text_field, loaded.max_doc_tokens) == ("body", 33)
    loaded = type(ranker).from_pretrained(tmp_path / "model", max_doc_tokens=None, batch_size=5, dtype="bfloat16")
    assert (loaded.text_field, loaded.max_doc_tokens, loaded.batch_size) == ("body", None, 5)
    assert loaded.dtype == torch.bfloat16


def test_files_are_safetensors_and_json(saved):
    names = {path.name for path in saved.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert all(name.endswith((".json", ".safetensors", ".txt")) for name in names)
    for path in saved.glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
    others = [path.read_bytes() for path in saved.iterdir() if path.suffix != ".safetensors"]  # those start with a size
    assert not any(content.startswith((b"\x80", b"PK")) for content in others)  # pickles, torch.save


def test_nothing_is_unpickled(saved, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a pickle was loaded")

    for module in ("pickle.load", "pickle.loads", "torch.load"):
        monkeypatch.setattr(module, refuse)
    longdoc.ReRanker.from_pretrained(saved)


def test_the_tokenizer_is_the_checkpoints_own(make_ranker, saved):
    text = "w1 unheard w17 Ünseen " * 300
    loaded = longdoc.ReRanker.from_pretrained(saved).tokenizer
    for tokenizer in (loaded, make_ranker().tokenizer):
        assert tokenizer.backend_tokenizer.truncation is None
    first, second = (each.encode(text, add_special_tokens=False) for each in (loaded, make_ranker().tokenizer))
    assert first == second


def test_weights_and_settings_have_a_fingerprint(tiny):
    names = {
        fingerprint(longdoc.TKL(tiny.words, **{"heads": 4, **settings}).model)
        for settings in ({}, {"seed": 1}, {"heads": 2}, {"peaks": 3, "stride": 3}, {"core": 30, "context": 10})
    }
    assert len(names) == 5
    assert fingerprint(longdoc.TKL(tiny.words, heads=4).model) in names


# What is no checkpoint ------------------------------------------------------------------------------------------------


def test_another_rankers_checkpoint(tkl):
    with pytest.raises(ValueError, match=r"holds a TKL; load it with TKL.from_pretrained"):
        longdoc.KNRM.from_pretrained(tkl)


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", "null", '"x"', '{"model_type": "bert"}', '{"format": "pyterrier_longdoc/0"}']
)
def test_a_foreign_config(tkl, content):
    (tkl / "config.json").unlink()
    if content is not None:
        (tkl / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="no.* checkpoint of pyterrier_longdoc"):
        longdoc.TKL.from_pretrained(tkl)


def test_a_foreign_model(tiny):
    with pytest.raises(ValueError, match="format.*checkpoint of pyterrier_longdoc"):
        longdoc.TKL.from_pretrained(tiny.encoder)


def edit(directory: Path, **changes: object) -> None:
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    for key, value in changes.items():
        part, _, name = key.partition("__")
        (config[part] if name else config)[name or part] = value
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"ranker": "TKM"}, {"ranker": "Vectors"}, {"ranker": "ReRanker"}, {"ranker": "__version__"}, {"ranker": None},
        {"ranker": ["TKL"]}, {"model__heads": 5}, {"model__heads": "four"}, {"model__colour": "red"},
        {"model__saturation": "root"}, {"model__dims": 48}, {"model__vocabulary": 7}, {"model__vocabulary": -1},
        {"model__layers": 3}, {"model__layers": 1}, {"model": []}, {"model": None}, {"options": None},
        {"options__colour": "red"}, {"options__max_doc_tokens": -3}, {"model__core": 0},
    ],
)
def test_an_edited_config_that_does_not_fit(tkl, changes):
    edit(tkl, **changes)
    with pytest.raises(ValueError, match=r"config\.json|max_doc_tokens"):
        longdoc.ReRanker.from_pretrained(tkl)


@pytest.mark.parametrize("part", ["model", "options", "ranker"])
def test_a_config_without_a_part(tkl, part):
    config = json.loads((tkl / "config.json").read_text(encoding="utf-8"))
    del config[part]
    (tkl / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json"):
        longdoc.ReRanker.from_pretrained(tkl)


@pytest.mark.parametrize("size", [0, 7, 200, -100, None])
def test_truncated_weights(saved, size):
    path = saved / "model.safetensors"
    content = path.read_bytes()
    path.unlink()
    if size is not None:
        path.write_bytes(content[:size])
    with pytest.raises(ValueError, match=r"model\.safetensors is missing, truncated or damaged"):
        longdoc.ReRanker.from_pretrained(saved)


def test_missing_unexpected_and_misshapen_weights(saved):
    path = saved / "model.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[-1]
    for broken in (
        {key: value for key, value in tensors.items() if key != name},
        {**tensors, "another.weight": torch.zeros(3)},
        {**tensors, name: torch.zeros(*tensors[name].shape, 2)},
    ):
        save_file(broken, path)
        with pytest.raises(ValueError, match=f"(?s)does not fit its config.json.*({name}|another.weight)"):
            longdoc.ReRanker.from_pretrained(saved)


def test_missing_tokenizer(tkl):
    (tkl / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="tokenizer"):
        longdoc.ReRanker.from_pretrained(tkl)


def test_damaged_tokenizer(tkl):
    (tkl / "tokenizer.json").write_text('{"version": "1.0"', encoding="utf-8")
    with pytest.raises(ValueError, match="tokenizer"):
        longdoc.ReRanker.from_pretrained(tkl)


def test_a_tokenizer_of_another_vocabulary(tiny, tkl):
    """Token ids beyond the table: found when loading, not when scoring."""
    big = {**tiny.words.tokenizer.get_vocab(), **{f"more{n}": 201 + n for n in range(50)}}
    content = json.loads((tkl / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"] = big
    (tkl / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match="tokenizer.*201"):
        longdoc.ReRanker.from_pretrained(tkl)


# Paths and names ------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_hub(monkeypatch):
    """The hub must not be asked."""
    import huggingface_hub

    def refuse(name, *args, **kwargs):
        raise AssertionError(f"{name} was looked up")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)


@pytest.mark.parametrize(
    "name", ["nowhere", "./some/model", "/some/model", "~/model", "../model", "a/b/c", "models/", "x/y/", "C:\\x/y"]
)
def test_a_path_is_never_taken_for_a_hub_name(no_hub, name):
    with pytest.raises(ValueError, match="neither a directory nor a hub name"):
        longdoc.TKL.from_pretrained(name)


def test_a_path_below_a_folder_that_exists_is_a_path(no_hub, tmp_path, monkeypatch):
    """"models/tkl" beside a folder "models" is a mistyped path, not a user of the hub."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(ValueError, match="models/tkl"):
        longdoc.TKL.from_pretrained("models/tkl")


def test_a_file_is_no_directory(no_hub, tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match="neither a directory"):
        longdoc.TKL.from_pretrained(tmp_path / "file")


def test_a_hub_name_that_cannot_be_fetched(monkeypatch):
    """Offline, or no such repository: the message says what was looked for, and where."""
    with pytest.raises(ValueError, match="someone/tkl-model"):
        longdoc.TKL.from_pretrained("someone/tkl-model")


def test_a_hub_name_is_fetched(tkl, monkeypatch, small):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, *args, **kwargs: str(tkl))
    ranker = longdoc.TKL.from_pretrained("someone/tkl")
    assert repr(ranker) == "TKL('someone/tkl')"
    assert list(ranker(small)["score"]) == list(longdoc.TKL.from_pretrained(tkl)(small)["score"])


def test_relative_paths_and_new_folders(make_ranker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ranker = make_ranker()
    ranker.save("deep/er/model")
    assert type(type(ranker).from_pretrained("deep/er/model")) is type(ranker)
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["model"]


# Replacing what is there ----------------------------------------------------------------------------------------------


def test_saving_over_an_existing_checkpoint(make_ranker, saved, small, tmp_path):
    other = make_ranker(seed=5)
    (saved / "leftover.bin").write_bytes(b"x")
    other.save(saved)
    assert list(longdoc.ReRanker.from_pretrained(saved)(small)["score"]) == list(other(small)["score"])
    assert not (saved / "leftover.bin").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_loaded_ranker_saves_over_its_own_files(saved, small):
    ranker = shake(longdoc.ReRanker.from_pretrained(saved), seed=9)
    expected = list(ranker(small)["score"])
    ranker.save(saved)
    assert list(ranker(small)["score"]) == expected
    assert list(longdoc.ReRanker.from_pretrained(saved)(small)["score"]) == expected


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_save_leaves_the_old_one(make_ranker, saved, small, tmp_path, monkeypatch, error):
    expected = list(make_ranker()(small)["score"])
    other = make_ranker(seed=5)

    def fail(model, path, **kwargs):
        Path(path).write_bytes(b"half")
        raise error

    monkeypatch.setattr("safetensors.torch.save_model", fail)
    with pytest.raises(type(error)):
        other.save(saved)
    assert list(longdoc.ReRanker.from_pretrained(saved)(small)["score"]) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_move_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    replace, calls = os.replace, []

    def failing(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("interrupted")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="interrupted"):
        write_directory(tmp_path / "model", lambda directory: (directory / "new").touch())
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_saved_models_can_be_moved(saved, small, tmp_path, make_ranker):
    shutil.move(saved, tmp_path / "elsewhere")
    assert np.array_equal(longdoc.ReRanker.from_pretrained(tmp_path / "elsewhere")(small)["score"],
                          make_ranker()(small)["score"])


# The published checkpoints --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [30, 200, 2_000])
def test_checkpoints_of_matchmaker_can_be_wrapped_and_saved(tiny, tmp_path, frame, rows):
    """Its position tables are as long as its longest document."""
    from pyterrier_longdoc.models.contextualizer import sinusoids
    from pyterrier_longdoc.models.tk import TKModel

    ours = longdoc.TK(tiny.words, heads=4)
    state = ours.model.state_dict()
    theirs = {
        **{name: value for name, value in state.items() if name.startswith("contextualizer.layers.")},
        "mixer": state["contextualizer.alpha"],
        "positional_features_q": sinusoids(0, rows, 24)[None],
        "positional_features_d": sinusoids(500, rows, 24)[None],
        "kernel_alpha_scaler": state["scale"].view(1, 1, 11),
        "kernel_bin_weights.weight": state["dense.weight"],
    }
    model = TKModel.from_matchmaker(theirs, heads=4)
    model.vectors = ours.model.vectors
    model.config = ours.model.config
    wrapped = longdoc.TK.from_model(model, ours.tokenizer, model_name="theirs")
    wrapped.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="max_doc_tokens"):
        rankers = ours, wrapped, longdoc.TK.from_pretrained(tmp_path / "model")
        scores = [list(ranker(frame)["score"]) for ranker in rankers]
    assert scores[0] == scores[1] == scores[2]
