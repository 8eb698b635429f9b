"""Jobs on more ranks than tests/parallel is started with, and the same job twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(ranks: int, *command: str) -> str:
    """Runs Python under horovodrun; returns what all ranks wrote."""
    horovodrun = str(Path(sys.executable).with_name("horovodrun"))
    result = subprocess.run(
        [horovodrun, "--gloo", "-np", str(ranks), sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [3, 4])
def test_training_is_exact(ranks) -> None:
    options = ["-x", "-q", "-p", "no:cacheprovider"]
    output = run(ranks, "-m", "pytest", *options, "tests/parallel/test_exactness.py")
    assert len(re.findall(r"\d+ passed", output)) == ranks


@pytest.mark.timeout(300)
def test_two_runs_of_a_job_give_the_same_bits() -> None:
    first, second = (
        re.search(r"digests (.*)", run(2, "tests/integration/jobs/digests.py")) for _ in range(2)
    )
    assert first[1] == second[1]
