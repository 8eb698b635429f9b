"""Ranks that die while a job starts: they are named, and the job ends on all hosts at once.

The ranks wait for one that never comes, so a kill finds them in the start.
"""

from __future__ import annotations

import re
import signal

import pytest

from tests.integration.conftest import needs_hosts
from tests.support.hosts import Hosts
from tests.support.jobs.host_job import HostJob

pytestmark = needs_hosts

STARTING = "tests/integration/jobs/starting.py"


@pytest.mark.parametrize(
    ("slots", "victim"),
    [
        pytest.param({"h1": 2, "h2": 2}, 3, id="rank-3-of-h2"),
        # With a survivor on the launcher's host: what others say may end with horovodrun's ssh.
        pytest.param({"h1": 3, "h2": 1}, 0, id="rank-0"),
    ],
)
def test_a_rank_that_dies_in_horovods_start_is_named(
    hosts: Hosts, slots: dict[str, int], victim: int
) -> None:
    with HostJob(hosts, slots, 1, script=STARTING) as job:
        job.send(victim, signal.SIGKILL)
        assert job.wait_for_ends(10) != 0
    assert deaths(job) == {str(job.ranks[victim])}, job.output


def test_ranks_of_two_hosts_that_die_at_once_are_both_named(hosts: Hosts) -> None:
    with HostJob(hosts, {"h1": 3, "h2": 1}, 1, script=STARTING) as job:
        job.kill_at_once([2, 3], watcher=0)
        assert job.wait_for_ends(10) != 0
    assert deaths(job) == {str(job.ranks[2]), str(job.ranks[3])}, job.output


def deaths(job: HostJob) -> set[str]:
    """Returns the ranks of which the job's messages say that they have died."""
    return set(re.findall(r"(rank \d+ \(pid \d+ on \S+\)) has died", job.output))


@pytest.mark.parametrize(
    ("victim", "named"),
    [
        pytest.param(0, "rank 0 on h1", id="rank-0"),
        pytest.param(1, "rank 1 on h1", id="rank-1"),
        pytest.param(3, "rank 3 on h2", id="rank-3-of-h2"),
    ],
)
def test_a_rank_that_dies_before_it_comes_is_named_as_missing(
    hosts: Hosts, victim: int, named: str
) -> None:
    with HostJob(hosts, {"h1": 2, "h2": 2}, victim, script=STARTING) as job:
        job.send(victim, signal.SIGKILL)
        assert job.wait_for_ends(10) != 0
    assert f"Not there yet: {named}. So " in job.output, job.output
    assert "has died" not in job.output, job.output


def test_ranks_meet_and_leave_in_order_where_horovod_runs_before(hosts: Hosts) -> None:
    slots = {"h1": 2, "h2": 1}
    output = hosts.horovodrun(slots, "tests/integration/jobs/started_before.py")
    assert output.count("has left the first job") == output.count("has left the second job") == 3
    assert "tfhybrid.watch" not in output, output
