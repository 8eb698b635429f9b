"""The examples run, and learn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
def test_the_job_that_may_be_killed_goes_on(tmp_path, python):
    for begun_at in (0, 4):  # all epochs, and then none
        run = python.run(str(EXAMPLES / "restartable.py"), str(tmp_path / "saved"), cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        epoch, auc = re.search(r"from epoch (\d): test AUC ([\d.]+)", run.stdout).groups()
        assert int(epoch) == begun_at
        assert float(auc) > 0.74
