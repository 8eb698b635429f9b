"""A job on two hosts, killed at random moments: it comes to what one comes to that was not.

The number of kills is TFHYBRID_SOAK_RESTARTS (default 50 with replicated tables, 100 with sharded
ones, of which every other one kills a single rank: an owner, or one that reads from owners).
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

KILLS = os.environ.get("TFHYBRID_SOAK_RESTARTS")
REASON = several.missing()
SLOTS = {"h1": 2, "h2": 2}


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize(("sharded", "kills"), [(0, 50), (1, 100)], ids=["replicated", "sharded"])
def test_random_kills_change_nothing(
    sharded: int, kills: int, tmp_path: Path, record_property
) -> None:
    kills = int(KILLS or kills)
    moments = random.Random(int(os.environ.get("TFHYBRID_SOAK_SEED", "1")))
    resumed = rolled = early = 0
    last = 0
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    with several.hosts(2) as hosts, forked_jobs(ranks, hosts) as jobs:
        restarts = Restarts(jobs, SLOTS, tmp_path / "checkpoints", steps=60 * kills)
        _, wanted = restarts.finish(sharded=sharded)
        for number in range(kills):
            job = restarts.start(sharded=sharded)
            trains = number % 4 > 0  # every fourth is killed at any moment, while it starts too
            if trains:
                job.wait_for("trained rank")
            threading.Event().wait(moments.uniform(0.0, 2.0 if trains else 8.0))
            if sharded and number % 2:
                statuses = job.kill_one(moments.randrange(sum(SLOTS.values())))
                assert 0 not in statuses, job.output
            else:
                job.kill()
            output = job.output
            resumed += "Resumed from memory at" in output
            rolled += "died one update behind" in output
            if output.count("going on rank") < sum(SLOTS.values()):
                early += 1
                continue
            assert begun_at(output) >= last, output
            last = begun_at(output)
        output, digests = restarts.finish(sharded=sharded)
    counts = f"{kills} kills: {resumed} resumed, {rolled} rolled forward, {early} while starting"
    record_property("counts", f"{counts}; the last went on at {begun_at(output)}")
    print(counts)  # noqa: T201
    assert re.search("Resumed from memory at", output)
    assert sorted(digests) == sorted(wanted), counts
