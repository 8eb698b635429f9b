"""The examples run, and learn."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tfhybrid.data import ClickLog, IdSpace

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("example", "auc"), [("train_from_files.py", 0.69), ("training_loop.py", 0.73)]
)
def test_it_reaches_what_it_can(example, auc, tmp_path, python):
    run = python.run(str(EXAMPLES / example), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert float(re.search(r"test AUC ([\d.]+)", run.stdout.splitlines()[-1])[1]) > auc


@pytest.mark.timeout(300)
def test_the_job_that_may_be_killed_resumes(tmp_path, python):
    for begun_at in (0, 4):  # all epochs, and then none
        run = python.run(str(EXAMPLES / "restartable.py"), str(tmp_path / "saved"), cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        epoch, auc = re.search(r"from epoch (\d): test AUC ([\d.]+)", run.stdout).groups()
        assert int(epoch) == begun_at
        assert float(auc) > 0.74


@pytest.mark.timeout(180)
def test_online_training_learns_as_rows_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    online = importlib.import_module("online")
    log = ClickLog({"user": IdSpace(100), "item": IdSpace(50)}, seed=1)
    choices = argparse.Namespace(trainers=2, push="deltas", rate=20_000.0)
    curve = online.replay(log.clicks(0, 12_000), tmp_path, choices, Console(quiet=True))
    assert len(curve) == online.WINDOWS
    assert np.mean([auc for _, auc in curve[-4:]]) > np.mean([auc for _, auc in curve[:4]]) + 0.03
