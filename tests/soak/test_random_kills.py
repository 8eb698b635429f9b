"""Many jobs, each killed at a random moment: nothing hangs, nothing stays behind, no row is lost.

The number of kills is TFHYBRID_SOAK_KILLS (default 50 jobs under horovodrun, 1000 native ones).
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from tests.support.jobs.running_job import RunningJob

KILLS = os.environ.get("TFHYBRID_SOAK_KILLS")
ROOT = Path(__file__).parents[2]
ENDLESS = ROOT / "tests/integration/jobs/endless.py"
RANDOM_KILLS = ROOT / "build/native/tests/random_kills"


def test_random_kills_leave_nothing_behind():
    moments = random.Random(7)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-soak-") as directory:
        for number in range(int(KILLS or 50)):
            job = RunningJob(2, Path(directory), ENDLESS, f"job{number}")
            try:
                threading.Event().wait(moments.uniform(0.0, 2.0))
                job.kill(moments.randrange(2))
                assert job.wait(15) != 0
            finally:
                job.stop()
            stores = list(Path(directory).glob(f"tfhybrid-{os.geteuid()}-*"))
            assert {store.name.rsplit("-", 1)[1] for store in stores} <= {f"job{number}"}


def test_recovery_after_random_kills_loses_no_row():
    if not RANDOM_KILLS.exists():
        pytest.skip("scripts/test native builds it")
    seed = str(random.SystemRandom().randrange(1_000_000))
    done = subprocess.run(
        [RANDOM_KILLS, KILLS or "1000", seed],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
