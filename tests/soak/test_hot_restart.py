"""A job on two hosts, killed at random moments: it comes to what one comes to that was not.

The number of kills is TFHYBRID_SOAK_RESTARTS (default 50 with replicated tables, 100 with sharded
ones, and 100 with sharded ones in files and passes; of sharded ones every other kill is of a single
rank: an owner, or one that reads from owners, whom all others then name within 5 seconds).
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from pathlib import Path

import pytest

from tests.support import hosts as several
from tests.support.jobs.forked_job import ForkedJob, forked_jobs
from tests.support.jobs.restarts import Restarts, begun_at

KILLS = os.environ.get("TFHYBRID_SOAK_RESTARTS")
REASON = several.missing()
SLOTS = {"h1": 2, "h2": 2}
# Options of the job, and kills.
KINDS: dict[str, tuple[dict[str, int], int]] = {
    "replicated": ({}, 50),
    "sharded": ({"sharded": 1}, 100),
    "passes": ({"sharded": 1, "passes": 3, "files": 1 << 16}, 100),
}
SECONDS_TO_NAME = 5.0


def kill_one(job: ForkedJob, rank: int, trains: bool) -> None:
    """Kills a rank; the others end by themselves, and say who it was if all had begun."""
    begun = time.monotonic()
    statuses = job.kill_one(rank)
    seconds = time.monotonic() - begun
    assert 0 not in statuses, job.output
    if trains:
        assert seconds < SECONDS_TO_NAME, f"{seconds:.1f} s: {job.output}"
        assert re.search(rf"\brank {rank}\b", job.output), job.output


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("kind", KINDS)
def test_random_kills_change_nothing(kind: str, tmp_path: Path, record_property) -> None:
    options, kills = KINDS[kind]
    kills = int(KILLS or kills)
    moments = random.Random(int(os.environ.get("TFHYBRID_SOAK_SEED", "1")))
    resumed = rolled = early = 0
    last = 0
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    with several.hosts(2) as hosts, forked_jobs(ranks, hosts) as jobs:
        restarts = Restarts(jobs, SLOTS, tmp_path / "checkpoints", steps=60 * kills)
        _, wanted = restarts.finish(**options)
        for number in range(kills):
            job = restarts.start(**options)
            trains = number % 4 > 0  # every fourth is killed at any moment, while it starts too
            if trains:
                job.wait_for("trained rank")
            threading.Event().wait(moments.uniform(0.0, 2.0 if trains else 8.0))
            if options and number % 2:
                kill_one(job, moments.randrange(sum(SLOTS.values())), trains)
            else:
                job.kill()
            output = job.output
            resumed += "Resumed from memory at" in output
            rolled += "died one update behind" in output
            if output.count("resumes rank") < sum(SLOTS.values()):
                early += 1
                continue
            assert begun_at(output) >= last, output
            last = begun_at(output)
        output, digests = restarts.finish(**options)
    counts = f"{kills} kills: {resumed} resumed, {rolled} rolled forward, {early} while starting"
    record_property("counts", f"{counts}; the last resumed at {begun_at(output)}")
    print(counts)  # noqa: T201
    assert re.search("Resumed from memory at", output)
    assert sorted(digests) == sorted(wanted), counts
