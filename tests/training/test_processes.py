import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from pyterrier_longdoc import TKL
from tests.training.toy_task import RUN, task, tiny_ranker

SCRIPT = Path(__file__).with_name("toy_task.py")


def test_two_processes_train_what_one_does(tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, SCRIPT, "share", tmp_path], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall("./.", done.stdout)) == ["0/2", "1/2"]  # the lines of both may run together
    assert done.stderr.count("| 0/12 [") == 1  # one bar: only the first process shows progress
    # 7 examples over two processes in two parts each: some parts are uneven, and in the last batch (2) some are empty
    alone = tiny_ranker().fit(*task(), verbose=False, **{**RUN, "batch_size": 7, "save_every": None})
    shared = TKL.from_pretrained(str(tmp_path / "best"), device="cpu")
    for name, tensor in alone.model.state_dict().items():
        assert torch.allclose(shared.model.state_dict()[name], tensor, atol=5e-4), name
    resumed = tiny_ranker().fit(
        *task(), resume=tmp_path, verbose=False, **{**RUN, "batch_size": 7, "accumulate": 2}
    )
    pd.testing.assert_frame_equal(
        resumed.history.drop(columns="seconds"), alone.history.drop(columns="seconds"), rtol=1e-3, check_exact=False
    )
    assert resumed.history["loss"][0] == pytest.approx(alone.history["loss"][0], rel=1e-5)
