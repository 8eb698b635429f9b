"""kill -9 of a process that saves: what is there is whole, and the next job goes on from it."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of, steps

ROOT = Path(__file__).resolve().parents[2]
JOB = Path(__file__).parent / "jobs/saving.py"
KILLS = int(os.environ.get("TFHYBRID_SOAK_SAVES", "3"))


def killed_job(directory: Path, shm_directory: Path, seconds: float) -> int:
    """Starts the job and kills it some time after its first save; returns where it had begun."""
    process = subprocess.Popen(
        [sys.executable, str(JOB), str(directory)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TFHYBRID_SHM_DIR": str(shm_directory)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()
    found = re.search(r"saving, restored at (\d+)", line)
    assert found, f"the job ended first: {line!r}"
    return int(found[1])


@pytest.mark.timeout(60 * KILLS)
def test_every_checkpoint_that_is_there_is_whole(tmp_path, shm_directory) -> None:
    moments = random.Random(1)
    newest = 0
    for _ in range(KILLS):
        assert killed_job(tmp_path, shm_directory, moments.uniform(0, 1.5)) == newest
        known = steps(tmp_path)
        assert len(known) >= 1
        for step in known:
            StoredCheckpoint.open(folder_of(tmp_path, step)).check()
        assert known[-1] > newest
        newest = known[-1]
    unfinished = [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert len(unfinished) <= KILLS
