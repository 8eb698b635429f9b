"""A job on two hosts, killed whole at random moments: it comes to what one comes to that was not.

The number of kills is TFHYBRID_SOAK_RESTARTS (default 50).
"""

from __future__ import annotations

import os
import random
import re
import threading
from pathlib import Path

import pytest

from tests.integration import hosts as several
from tests.integration.forked_job import forked_jobs
from tests.integration.restarts import Restarts, begun_at

KILLS = int(os.environ.get("TFHYBRID_SOAK_RESTARTS", "50"))
REASON = several.missing()
SLOTS = {"h1": 2, "h2": 2}


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_random_kills_change_nothing(tmp_path: Path, record_property) -> None:
    moments = random.Random(int(os.environ.get("TFHYBRID_SOAK_SEED", "1")))
    resumed = rolled = early = 0
    last = 0
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    with several.hosts(2) as hosts, forked_jobs(ranks, hosts) as jobs:
        restarts = Restarts(jobs, SLOTS, tmp_path / "checkpoints", steps=60 * KILLS)
        _, wanted = restarts.finish()
        for number in range(KILLS):
            job = restarts.start()
            trains = number % 4 > 0  # every fourth is killed at any moment, while it starts too
            if trains:
                job.wait_for("trained rank")
            threading.Event().wait(moments.uniform(0.0, 2.0 if trains else 8.0))
            job.kill()
            output = job.output
            resumed += "Resumed from memory at" in output
            rolled += "died one update behind" in output
            if output.count("going on rank") < sum(SLOTS.values()):
                early += 1
                continue
            assert begun_at(output) >= last, output
            last = begun_at(output)
        output, digests = restarts.finish()
    counts = f"{KILLS} kills: {resumed} resumed, {rolled} rolled forward, {early} while starting"
    record_property("counts", f"{counts}; the last went on at {begun_at(output)}")
    print(counts)  # noqa: T201
    assert re.search("Resumed from memory at", output)
    assert sorted(digests) == sorted(wanted), counts
