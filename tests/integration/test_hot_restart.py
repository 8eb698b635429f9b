"""Jobs that are killed whole and started again: they go on from memory, or say why not."""

from __future__ import annotations

import json
import random
import re
import sys

import pytest

from tests.integration.conftest import needs_hosts
from tests.support.jobs.restarts import SCRIPT, Restarts, begun_at

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def alone(forked_jobs, tmp_path, shm_directory) -> Restarts:
    return Restarts(forked_jobs, {"localhost": 2}, tmp_path / "checkpoints", shm_directory)


@pytest.fixture
def together(forked_jobs_on_hosts, tmp_path) -> Restarts:
    return Restarts(forked_jobs_on_hosts, {"h1": 2, "h2": 2}, tmp_path / "checkpoints")


def killed_again_and_again(
    restarts: Restarts, kills: int, *, device: int = 0, **options: float
) -> None:
    """Kills a job at random moments; what it comes to is what one comes to that was not killed.

    With `device`, that gathers on the host, and the one that is killed on the device.
    """
    _, wanted = restarts.finish(**options)
    options = options | {"device": device}
    assert len(set(wanted)) == sum(restarts.slots.values())
    moments = random.Random(5)
    last = 0
    for number in range(kills):
        output = restarts.kill_in_training(moments.uniform(0.0, 0.5), **options)
        begun = begun_at(output)
        assert ("Resumed from memory" in output) == (number > 0), output
        assert begun > last or number == 0, output
        last = begun
    output, digests = restarts.finish(**options)
    assert f"Resumed from memory at step {begun_at(output)}," in output
    assert sorted(digests) == sorted(wanted)


def test_a_host_killed_again_and_again(alone, shm_directory) -> None:
    killed_again_and_again(alone, 3)
    assert not list(shm_directory.glob("tfhybrid-*-restarted"))


@needs_hosts
def test_hosts_killed_again_and_again(together) -> None:
    killed_again_and_again(together, 3)


def test_owners_of_rows_killed_again_and_again(together) -> None:
    killed_again_and_again(together, 3, sharded=1, device=1)


def test_an_error_in_the_script_leaves_the_tables(alone) -> None:
    job = alone.start(fail=30)
    assert any(job.wait())
    output, _ = alone.finish()
    assert begun_at(output) == 30


def test_another_number_of_ranks_takes_the_checkpoint(alone) -> None:
    alone.kill_in_training(0.3, save=5)
    output = alone.start({"localhost": 1}).succeed()
    assert "Not resumed from memory: rank 0: the host of each rank was [0, 0], and is [0]" in output
    assert begun_at(output) % 5 == 0
    assert begun_at(output) > 0


@needs_hosts
def test_a_host_that_has_lost_its_memory(together, hosts) -> None:
    together.kill_in_training(0.3, save=5)
    hosts.run("h2", "rm", "-r", "/dev/shm/tfhybrid-0-restarted")
    output, _ = together.finish()
    assert re.search(r"Not resumed from memory: h2: Cannot open .*restarted/store", output)
    assert begun_at(output) % 5 == 0
    assert begun_at(output) > 0


CHANGE_A_NUMBER = """
import sys
with open(sys.argv[1], "r+b") as rows:
    content = rows.read()
    last = len(content.rstrip(b"\\0")) - 1  # of the last row's last number
    rows.seek(last)
    rows.write(bytes([content[last] ^ 1]))
"""


@needs_hosts
def test_hosts_whose_rows_differ_take_the_checkpoint(together, hosts) -> None:
    together.kill_in_training(0.3, save=5)
    rows = hosts.run("h2", "sh", "-c", "ls /dev/shm/tfhybrid-0-restarted/*.rows.0").split()[0]
    hosts.run("h2", sys.executable, "-c", CHANGE_A_NUMBER, rows)
    output, _ = together.finish()
    assert re.search(r"Not resumed from memory: rank 0 on .* have different rows in \[", output), (
        output
    )
    assert begun_at(output) % 5 == 0
    assert begun_at(output) > 0


@needs_hosts
def test_hosts_one_update_apart_resume_at_the_later_one(together) -> None:
    _, wanted = together.finish()
    job = together.start(lag=40)
    job.wait()
    assert job.output.count("version 41") == 2
    output, digests = together.finish()
    assert "1 of 2 hosts died one update behind; they have caught up" in output
    assert begun_at(output) == 41
    assert sorted(digests) == sorted(wanted)


@needs_hosts
def test_hosts_in_another_order(together) -> None:
    together.kill_in_training(0.1)
    output = together.start({"h2": 2, "h1": 2}).succeed()
    assert "Not resumed from memory: the hosts came in another order" in output
    assert begun_at(output) == 0


@needs_hosts
def test_under_horovodrun(hosts, tmp_path) -> None:
    slots = {"h1": 1, "h2": 1}
    arguments = (SCRIPT, str(tmp_path), "60", json.dumps({"die": 20}))
    first = hosts.start(slots, *arguments)
    output, _ = first.communicate(timeout=240)
    assert first.returncode != 0, output
    output = hosts.horovodrun(slots, *arguments[:3])
    begun = int(re.search(r"Resumed from memory at step (\d+)", output)[1])
    assert begun >= 20
