"""Sharing a ranker: packages that PyTerrier can load, model cards that say how."""

import tarfile

import numpy as np
import pyterrier as pt
import pytest
from lz4.frame import LZ4FrameFile

import pyterrier_longdoc as longdoc
from pyterrier_longdoc.artifact import model_card
from tests.conftest import shake


@pytest.fixture
def tkl(tiny):
    return shake(longdoc.TKL(tiny.words, heads=4))


@pytest.fixture
def results(small):
    return small


@pytest.fixture
def artifact(tkl, tmp_path):
    return longdoc.LongDocModel.save(tkl, tmp_path / "model")


def test_pt_artifact_load_gives_the_same_scores(artifact, tkl, results):
    loaded = pt.Artifact.load(artifact.path)
    assert type(loaded) is longdoc.LongDocModel
    assert np.array_equal(loaded.reranker()(results).score, tkl(results).score)


def test_package_holds_the_checkpoint_and_no_pickle(artifact, tmp_path):
    package = artifact.build_package(str(tmp_path / "a.tar.lz4"), verbose=False)
    with LZ4FrameFile(package) as stream, tarfile.open(fileobj=stream) as archive:
        names = {name.removeprefix("./") for name in archive.getnames()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "pt_meta.json"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl", ".pickle"))]


def test_to_hf_uploads_the_package_with_a_model_card(artifact, monkeypatch):
    import huggingface_hub

    uploads = {}

    def upload(repo_id, folder_path, **_):
        from pathlib import Path

        uploads[repo_id] = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}

    monkeypatch.setattr(huggingface_hub, "create_repo", lambda *_, **__: None)
    monkeypatch.setattr(huggingface_hub, "create_branch", lambda *_, **__: None)
    monkeypatch.setattr(huggingface_hub, "upload_folder", upload)
    artifact.to_hf("someone/tkl-tiny")
    card = uploads["someone/tkl-tiny"]["README.md"].decode()
    assert 'pt.Artifact.from_hf("someone/tkl-tiny").reranker()' in card
    assert "Local Self-Attention over Long Text" in card
    assert any(name.startswith("artifact.tar.lz4") for name in uploads["someone/tkl-tiny"])


def test_push_to_hub_uploads_a_loadable_directory(tkl, results, monkeypatch, tmp_path):
    import shutil

    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "create_repo", lambda *_, **__: None)
    monkeypatch.setattr(
        huggingface_hub, "upload_folder", lambda repo_id, folder_path: shutil.copytree(folder_path, tmp_path / "hub")
    )
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name: str(tmp_path / "hub"))
    tkl.push_to_hub("someone/tkl-tiny")
    assert np.array_equal(longdoc.TKL.from_pretrained("someone/tkl-tiny")(results).score, tkl(results).score)
    assert 'TKL.from_pretrained("someone/tkl-tiny")' in (tmp_path / "hub" / "README.md").read_text()


def test_card_names_the_limit(tkl, tmp_path):
    tkl.max_doc_tokens = 123
    tkl.save(tmp_path / "model")
    assert "the first 123 tokens" in model_card(tmp_path / "model", "x", "ranker = ...")
