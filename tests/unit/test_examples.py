"""The examples run, and learn."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("example", "auc"), [("train_from_files.py", 0.69), ("training_loop.py", 0.73)]
)
def test_it_reaches_what_it_can(example, auc, tmp_path):
    run = subprocess.run(
        [sys.executable, EXAMPLES / example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert float(re.search(r"test AUC ([\d.]+)", run.stdout.splitlines()[-1])[1]) > auc
