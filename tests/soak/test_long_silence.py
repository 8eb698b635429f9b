"""A link that is down for longer than the default limit; a leader that stops for nearly as long."""

from __future__ import annotations

import re
import signal

import pytest

from tests.support import hosts as several
from tests.support.jobs.host_job import ENDLESS, HostJob

REASON = several.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

LIMIT_SECONDS = 60


def test_a_link_that_stays_down_ends_the_job_soon_after_the_limit():
    with several.hosts(2) as hosts, HostJob(hosts, {"h1": 2, "h2": 2}, "down", 1, ENDLESS) as job:
        hosts.link("h2", up=False)
        assert not job.find("tfhybrid.watch", seconds=LIMIT_SECONDS - 5)
        assert job.wait_for_ends(5 + 30) != 0
    silent = re.findall(r"tfhybrid\.watch: (.+?) has not answered for 60 s", job.output)
    assert silent
    assert set(silent) <= {str(rank) for rank in job.ranks[2:]}


@pytest.mark.parametrize("leader", [0, 2])
def test_a_leader_may_stop_for_longer_than_horovods_own_default(leader):
    with several.hosts(2) as hosts, HostJob(hosts, {"h1": 2, "h2": 2}, "stop", 2, 300) as job:
        assert job.find("round 1 has begun"), job.output
        job.send(leader, signal.SIGSTOP)
        assert not job.find("round 1 has ended", seconds=45), job.output
        job.send(leader, signal.SIGCONT)
        assert job.wait_for_ends(240) == 0, job.output
    digests = re.findall(r"round \d+ has ended: (.+)", job.output)
    assert len(digests) == 4
    assert len(set(digests)) == 1
