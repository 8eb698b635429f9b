"""A link that is cut while rows are on their way: nothing is torn, and training goes on exactly."""

from __future__ import annotations

import re
import time

import pytest

from tests.integration.conftest import needs_hosts
from tests.support.hosts import Hosts
from tests.support.jobs.forked_job import ForkedJob, ForkedJobs
from tests.support.jobs.restarts import Restarts, begun_at

pytestmark = [pytest.mark.timeout(600), needs_hosts]

SLOTS = {"h1": 1, "h2": 1}
STEPS, FETCH, SAVE = 12, 6, 4
SILENCE_SECONDS = 4
# Of the 4 MB that rank 0 asks for; 1 MB comes at once, and then 1 MB a second.
CUT_AFTER = 1_500_000


@pytest.fixture(scope="module")
def slow_jobs(hosts: Hosts, forked_jobs_on_hosts: ForkedJobs) -> ForkedJobs:
    """On hosts with slow links."""
    hosts.limit("8mbit")
    return forked_jobs_on_hosts


@pytest.fixture(scope="module")
def wanted(slow_jobs: ForkedJobs, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The digests of a training in which nothing is fetched and nothing is cut."""
    directory = tmp_path_factory.mktemp("undisturbed")
    return sorted(Restarts(slow_jobs, SLOTS, directory, steps=STEPS).finish(sharded=1)[1])


@pytest.fixture
def restarts(slow_jobs: ForkedJobs, tmp_path_factory: pytest.TempPathFactory) -> Restarts:
    return Restarts(slow_jobs, SLOTS, tmp_path_factory.mktemp("checkpoints"), steps=STEPS)


def cut_in_fetch(hosts: Hosts, restarts: Restarts, announced: int) -> ForkedJob:
    """Starts a job, and cuts the link of h2 when a part of the rows has come."""
    job = restarts.start(sharded=1, fetch=FETCH, announced=announced, save=SAVE)
    job.wait_for("fetching")
    before, deadline = hosts.received("h1"), time.monotonic() + 60
    while hosts.received("h1") < before + CUT_AFTER:
        assert time.monotonic() < deadline, job.output
        time.sleep(0.02)
    hosts.link("h2", up=False)
    assert "fetched" not in job.output
    return job


@pytest.mark.parametrize("announced", [0, 1], ids=["lookup", "pass"])
def test_a_link_that_returns_changes_no_bit(hosts, restarts, wanted, announced) -> None:
    job = cut_in_fetch(hosts, restarts, announced)
    try:
        time.sleep(2)
        assert "fetched" not in job.output
    finally:
        hosts.link("h2", up=True)
    output = job.succeed()
    assert "fetched" in output
    assert sorted(re.findall(r"digests (rank=.*)", output)) == wanted


@pytest.mark.parametrize(
    ("announced", "lost"), [(0, False), (1, True)], ids=["lookup-memory", "pass-checkpoint"]
)
def test_a_link_that_stays_away_ends_all_and_the_next_run_resumes(
    hosts, restarts, wanted, announced, lost
) -> None:
    """From memory, or from the checkpoint if a host has lost its memory meanwhile."""
    restarts.env["TFHYBRID_SILENCE_SECONDS"] = str(SILENCE_SECONDS)
    job = cut_in_fetch(hosts, restarts, announced)
    cut = time.monotonic()
    try:
        assert all(job.wait())
    finally:
        hosts.link("h2", up=True)
    # Probes are a second apart, and a process may run on for 2 s (docs/concurrency.md).
    assert time.monotonic() - cut < SILENCE_SECONDS + 5, job.output
    told = re.findall(r"rank (\d) \(pid \d+ on (h\d)\) has not answered for 4 s", job.output)
    assert set(told) == {("0", "h1"), ("1", "h2")}, job.output  # by the other side each
    assert "fetched" not in job.output
    if lost:
        hosts.run("h2", "rm", "-r", "/dev/shm/tfhybrid-0-restarted")
    output, digests = restarts.finish(sharded=1)
    assert ("Resumed from memory" in output) is not lost, output
    assert begun_at(output) == (FETCH // SAVE * SAVE if lost else FETCH)
    assert sorted(digests) == wanted
