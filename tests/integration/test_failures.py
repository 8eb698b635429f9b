"""What fails is named and ends the job on all hosts at once; what only pauses changes nothing."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.integration.conftest import needs_hosts
from tests.support import hosts as several
from tests.support.hosts import ROOT, Hosts
from tests.support.jobs.host_job import ENDLESS, HostJob
from tfhybrid import __version__

pytestmark = [
    pytest.mark.timeout(600),
    needs_hosts,
]

TWO_BY_TWO = {"h1": 2, "h2": 2}
ONE_BY_ONE = {"h1": 1, "h2": 1}


@contextlib.contextmanager
def stopped_leader(hosts: Hosts, job: HostJob) -> Iterator[None]:
    job.send(2, signal.SIGSTOP)
    try:
        yield
    finally:
        job.send(2, signal.SIGCONT)


@contextlib.contextmanager
def cut_link(hosts: Hosts, job: HostJob) -> Iterator[None]:
    hosts.link("h2", up=False)
    try:
        yield
    finally:
        hosts.link("h2", up=True)


@contextlib.contextmanager
def losing(hosts: Hosts, job: HostJob, share: float) -> Iterator[None]:
    """h2 loses a share of the packets that reach it; those that it sends arrive."""
    hosts.impair("h2", share)
    try:
        yield
    finally:
        hosts.heal("h2")


lost_packets = functools.partial(losing, share=0.01)
deaf_host = functools.partial(losing, share=1.0)


@pytest.mark.parametrize(
    ("victim", "options"),
    [
        pytest.param(0, [], id="rank-0"),
        pytest.param(2, ["fork"], id="leader-of-h2-with-children"),
        pytest.param(3, [], id="rank-3-of-h2"),
        pytest.param(2, ["sharded"], id="owner-of-rows"),
    ],
)
def test_a_killed_rank_is_named_and_ends_all_hosts(hosts, victim, options):
    """A child that outlives its rank keeps the rank's connections open, Horovod's among them."""
    with HostJob(hosts, TWO_BY_TWO, f"killed-{victim}", 1, ENDLESS, *options) as job:
        for host in hosts.names:  # what the job before left has been removed
            assert hosts.stores(host) == {f"tfhybrid-{os.geteuid()}-killed-{victim}-0"}
        job.send(victim, signal.SIGKILL)
        assert job.wait_for_ends(25) != 0
    assert f"{job.ranks[victim]} has died. So " in job.output, job.output
    deaths = set(re.findall(r"tfhybrid\.watch: (.+?) has died", job.output))
    assert deaths == {str(job.ranks[victim])}, job.output


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="replicated", marks=pytest.mark.weekly),
        pytest.param(["sharded"], id="sharded"),
    ],
)
def test_what_passes_changes_no_bit(hosts, options):
    """In a round each of the same training."""
    with HostJob(hosts, TWO_BY_TWO, "disturbed", 4, 300, *options) as job:
        assert job.find("round 0 has ended", 2), job.output
        for number, fault, seconds in ((1, stopped_leader, 20), (2, cut_link, 10)):
            assert job.find(f"round {number} has begun"), job.output
            with fault(hosts, job):
                assert not job.find(f"round {number} has ended", seconds=seconds), job.output
        assert job.find("round 3 has begun"), job.output
        with lost_packets(hosts, job):
            assert job.wait_for_ends(240) == 0, job.output
    digests = re.findall(r"round (\d+) has ended: (.+)", job.output)
    of_rounds = [{digest for round_, digest in digests if round_ == str(n)} for n in range(4)]
    assert len(digests) == 8
    assert of_rounds == of_rounds[:1] * 4, job.output
    assert len(of_rounds[0]) == (2 if options else 1)
    # The watch says that others waited for the leader that was stopped, and reports no death.
    told = re.findall(r"tfhybrid\.watch: (.*)", job.output)
    assert all(each.startswith("Waited 10 s ") for each in told), job.output
    stopped = re.escape(f"Not in a step, or stopped: {job.ranks[2]}")
    assert any(re.search(rf"step \d+ of optimizer .*{stopped}", each) for each in told), job.output


@pytest.mark.parametrize(
    ("silence", "silent"), [(cut_link, [1]), (deaf_host, [0, 1])], ids=["cut", "deaf"]
)
def test_a_silent_host_is_named_and_the_job_ends_on_both_sides(hosts, monkeypatch, silence, silent):
    """To a deaf host the other one is silent; what it says when it gives up first arrives."""
    monkeypatch.setenv("TFHYBRID_SILENCE_SECONDS", "5")
    with HostJob(hosts, ONE_BY_ONE, "silent", 1, ENDLESS) as job, silence(hosts, job):
        assert job.wait_for_ends(5 + 15) != 0
    named = " has not answered for 5 s (TFHYBRID_SILENCE_SECONDS)"
    assert any(f"{job.ranks[rank]}{named}" in job.output for rank in silent), job.output


def test_one_host_without_room_stops_all_at_one_version():
    with several.hosts(2) as made:
        made.shrink("h2", "64m")
        output = made.horovodrun(TWO_BY_TWO, "tests/integration/jobs/filled_host.py")
    told = re.findall(r"rank \d on (h\d): version (\d+), (\d+) rows, after (\S+) s: (.+)", output)
    assert [host for host, *_ in sorted(told)] == ["h1", "h1", "h2", "h2"], output
    assert len({(version, rows) for _, version, rows, _, _ in told}) == 1, output
    assert max(float(seconds) for *_, seconds, _ in told) < 5, output
    assert all("On h2: No room" in why and "table 'item'" in why for *_, why in told), output


def test_another_version_on_one_host_is_named(hosts, tmp_path):
    other = tmp_path / "_version.py"
    other.write_text('__version__ = "0.0.1"\n')
    with hosts.replaced("h2", ROOT / "tfhybrid/_version.py", other):
        output = refused(hosts, ONE_BY_ONE, "other-version")
    assert (
        "All ranks must have the same version of tfhybrid. "
        f"Received: '{__version__}' on rank 0 on h1, but '0.0.1' on rank 1 on h2" in output
    )


def test_the_name_of_a_living_job_is_refused_with_its_processes(hosts):
    with HostJob(hosts, ONE_BY_ONE, "alive", 1, ENDLESS) as job:
        output = refused(hosts, {"h1": 2, "h2": 1}, "alive")
        told = {rank for rank in job.ranks if str(rank) in output}
        assert told == set(job.ranks), output
        job.send(0, signal.SIGKILL)
        job.wait_for_ends(25)


@pytest.mark.parametrize("way", ["exit", "raise"])
def test_a_rank_that_leaves_in_order_is_not_reported_dead(hosts, way):
    job = hosts.start(ONE_BY_ONE, "tests/integration/jobs/leaving.py", way)
    try:
        output, _ = job.communicate(timeout=240)
    finally:
        job.kill()
        job.wait()
    assert "has died" not in output, output
    assert (job.returncode == 0) == (way != "raise"), output
    assert "rank 0 has come to the end" in output or way == "raise", output


def refused(hosts: Hosts, slots: dict[str, int], name: str) -> str:
    """Returns what a job wrote that could not start."""
    job = hosts.start(slots, "tests/integration/jobs/training.py", name, "1", "1")
    try:
        output, _ = job.communicate(timeout=240)
    finally:
        job.kill()
        job.wait()
    assert job.returncode != 0, output
    return output
