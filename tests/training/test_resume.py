import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch

from pyterrier_longdoc import KNRM, TKL, ReRanker
from tests.training.toy_task import RUN, dropping_out, task, tiny_ranker, weights_equal

SCRIPT = Path(__file__).with_name("toy_task.py")
EVENTS = ["inside 5", "between 7", "best 2"]


def start(directory, *kill):
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen([sys.executable, SCRIPT, "train", directory, *kill], env=environment)


def state_in(directory):
    try:
        return json.loads((directory / "last" / "training.json").read_text())["state"]
    except OSError:  # just being replaced
        return {"step": -1}


@pytest.fixture(scope="module")
def uninterrupted():
    return dropping_out(tiny_ranker()).fit(*task(), verbose=False, **{**RUN, "save_every": None})


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Directories of trainings that ended by SIGKILL: from outside, and at awkward moments of writing."""
    folders = {event: tmp_path_factory.mktemp("run") / "training" for event in ["outside", *EVENTS]}
    outside = start(folders["outside"], "slowly", "0")
    children = [start(folders[event], *event.split()) for event in EVENTS]
    while outside.poll() is None and state_in(folders["outside"])["step"] < 4:
        time.sleep(0.002)
    outside.send_signal(signal.SIGKILL)
    assert [child.wait(timeout=120) for child in [outside, *children]] == [-signal.SIGKILL] * 4
    return folders


@pytest.mark.parametrize("event", ["outside", *EVENTS])
def test_a_killed_training_goes_on_bit_for_bit(killed, uninterrupted, event):
    directory = killed[event]
    if event.startswith("between"):
        assert not (directory / "last").exists()
    if event.startswith(("inside", "between")):
        assert list(directory.glob(".last.*"))
    if event == "best 2":
        assert state_in(directory)["best_id"] not in (directory / "best" / "config.json").read_text()
    resumed = dropping_out(tiny_ranker()).fit(*task(), resume=directory, verbose=False, **RUN)
    assert weights_equal(resumed, uninterrupted)
    assert resumed.model_name == uninterrupted.model_name
    pd.testing.assert_frame_equal(
        resumed.history.drop(columns="seconds"), uninterrupted.history.drop(columns="seconds"), check_exact=True
    )
    assert sorted(path.name for path in directory.iterdir()) == ["best", "last"]
    assert weights_equal(ReRanker.from_pretrained(str(directory / "best"), device="cpu"), uninterrupted)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished")
    ranker = tiny_ranker(KNRM).fit(*task(), output_dir=directory, epochs=2, batch_size=8, verbose=False)
    return directory, ranker


def test_a_finished_training_gives_its_best_weights_at_once(finished, monkeypatch):
    directory, ranker = finished
    again = tiny_ranker(KNRM)
    monkeypatch.setattr(again.model, "forward", None)  # nothing is computed any more
    again.fit(*task(), resume=str(directory), output_dir=directory, epochs=2, batch_size=8, verbose=False)
    assert weights_equal(again, ranker)
    pd.testing.assert_frame_equal(again.history, ranker.history)


def test_last_and_best_are_rankers(finished):
    directory, ranker = finished
    res = task()[2]
    best = ReRanker.from_pretrained(str(directory / "best"), device="cpu")
    assert (best(res)["score"] == ranker(res)["score"]).all()
    assert isinstance(KNRM.from_pretrained(str(directory / "last")), KNRM)
    names = {path.name for path in (directory / "last").iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "training.json", "optimizer.safetensors"}


def test_without_validation_best_is_the_last(tmp_path):
    ranker = tiny_ranker(KNRM).fit(*task()[:2], output_dir=tmp_path, epochs=2, batch_size=8, verbose=False)
    assert weights_equal(KNRM.from_pretrained(str(tmp_path / "best"), device="cpu"), ranker)


def test_resuming_something_else_is_refused(finished, tmp_path):
    directory, _ = finished
    res, qrels, *validation = task()
    same = {"resume": directory, "epochs": 2, "batch_size": 8, "verbose": False}

    def go_on(ranker_class=KNRM, res=res, **changes):
        tiny_ranker(ranker_class).fit(res, qrels, *validation, **{**same, **changes})

    with pytest.raises(ValueError, match="other settings: lr=0.001 then, 0.01 now; seed=0 then, 4 now"):
        go_on(lr=0.01, seed=4)
    with pytest.raises(ValueError, match="are not those of then"):
        go_on(res=res.iloc[8:])
    with pytest.raises(ValueError, match="the model are not those of then"):
        go_on(TKL)
    with pytest.raises(ValueError, match="no training to resume in"):
        go_on(resume=tmp_path)
    with pytest.raises(ValueError, match="resume goes on in its own directory"):
        go_on(output_dir=tmp_path)
    with pytest.raises(ValueError, match="already holds a training: go on with it by resume="):
        go_on(resume=None, output_dir=directory)


def test_lost_weights_are_noticed(finished, tmp_path):
    directory, _ = finished
    other = tmp_path / "copy"
    other.mkdir()
    for name in ("best", "last"):
        tiny_ranker(KNRM).save(str(other / name))
    (other / "last" / "training.json").write_bytes((directory / "last" / "training.json").read_bytes())
    with pytest.raises(ValueError, match="no longer holds the best weights"):
        tiny_ranker(KNRM).fit(*task(), resume=other, epochs=2, batch_size=8, verbose=False)
