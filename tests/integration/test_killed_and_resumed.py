"""A script with `Checkpoint(resume=True)`, killed at random steps, ends as if it never was."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tfhybrid import checkpoint
from tfhybrid._keras import IS_KERAS_3

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "tests" / "integration" / "jobs" / "resumed.py"
KILLS = int(os.environ.get("TFHYBRID_RESUME_KILLS", "3"))
SAVE_FREQ = 7

pytestmark = [
    pytest.mark.timeout(300 + 60 * KILLS),
    pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 cannot begin fit at an epoch of a callback"),
]


def run(ranks: int, shm: Path, *arguments: object, memory: bool = False) -> tuple[int, str]:
    """Runs the job and returns its status and output."""
    command = [str(Path(sys.executable).with_name("horovodrun")), "--gloo", "-np", str(ranks)]
    environment = {"PYTHONPATH": str(ROOT), "TFHYBRID_SHM_DIR": str(shm)}
    if memory:
        environment["TFHYBRID_TEST_MEMORY"] = "1"
    result = subprocess.run(
        [*command, sys.executable, str(JOB), *map(str, arguments)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return result.returncode, result.stdout


@pytest.mark.parametrize(
    ("ranks", "memory"), [(1, False), (2, False), (2, True)], ids=["one", "two", "memory"]
)
def test_killed_at_random_steps(ranks, memory, tmp_path, shm_directory):
    whole, result, folder = tmp_path / "whole.json", tmp_path / "killed.json", tmp_path / "saved"
    status, output = run(ranks, shm_directory, tmp_path / "undisturbed", whole, 32)
    assert status == 0, output
    draw = random.Random(ranks)
    done = 0
    for _ in range(KILLS):
        at = done + draw.randint(1, 3 * SAVE_FREQ if KILLS < 10 else SAVE_FREQ + 1)
        status, output = run(ranks, shm_directory, folder, result, 32, at, memory=memory)
        assert status != 0, output
        assert not result.exists()
        assert done == 0 or ("Resumed from memory" if memory else "Restored") in output
        # From a checkpoint, the steps since then are trained again.
        done = at if memory else max(checkpoint.steps(folder), default=0)
    status, output = run(ranks, shm_directory, folder, result, 32, memory=memory)
    assert status == 0, output
    assert json.loads(result.read_text()) == json.loads(whole.read_text())


def test_another_number_of_ranks_and_another_batch_go_on_at_the_next_sample(
    tmp_path, shm_directory
):
    result, folder = tmp_path / "end.json", tmp_path / "saved"
    status, output = run(2, shm_directory, folder, result, 32, 24)
    assert status != 0, output
    done = max(checkpoint.steps(folder))  # in the first epoch, of 1,000 samples
    status, output = run(1, shm_directory, folder, result, 50)
    assert status == 0, output
    assert "batch_size was 16, and is 50, ranks was 2, and is 1" in output
    left = 1000 - 32 * done
    assert json.loads(result.read_text())["step"] == done + math.ceil(left / 50) + 2 * 20
