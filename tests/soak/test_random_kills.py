"""Many jobs, each killed at a random moment: nothing hangs, nothing stays behind.

The number of jobs is TFHYBRID_SOAK_KILLS (default 50).
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
from pathlib import Path

from tests.integration.conftest import RunningJob

KILLS = int(os.environ.get("TFHYBRID_SOAK_KILLS", "50"))


def test_random_kills_leave_nothing_behind():
    moments = random.Random(7)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-soak-") as directory:
        for number in range(KILLS):
            job = RunningJob(2, f"job{number}", Path(directory))
            try:
                threading.Event().wait(moments.uniform(0.0, 2.0))
                job.kill(moments.randrange(2))
                assert job.wait(15) != 0
            finally:
                job.stop()
            stores = list(Path(directory).glob(f"tfhybrid-{os.geteuid()}-*"))
            assert {store.name.rsplit("-", 1)[1] for store in stores} <= {f"job{number}"}
