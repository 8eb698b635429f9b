"""Jobs as examples/project/launch starts them: here, on hosts over ssh, on a Slurm cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import slurm
from tests.integration.conftest import JOBS, needs, needs_hosts
from tests.integration.slurm import Cluster
from tests.support.hosts import ACTIVE, ROOT, Hosts

LAUNCH = ROOT / "examples" / "project" / "launch"
JOB = (sys.executable, str(JOBS / "whereabouts.py"))
needs_slurm = needs(slurm.missing())
pytestmark = [pytest.mark.timeout(600), pytest.mark.weekly]


def launch(*command: str, enter: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(enter or []), *command], env=ACTIVE, capture_output=True, text=True, check=False
    )


def whereabouts(written: str) -> list[tuple[str, str]]:
    """Returns host and number there of each rank."""
    ranks = re.findall(r"rank (\d+) of (\d+) on (\S+), its (\d+)", written)
    assert [int(rank) for rank, *_ in ranks] == [*range(len(ranks))], written
    assert {int(size) for _, size, *_ in ranks} == {len(ranks)}
    return [(host, number) for *_, host, number in ranks]


def test_on_this_host() -> None:
    done = launch(str(LAUNCH / "one_host"), "2", *JOB)
    assert done.returncode == 0, done.stderr
    assert [number for _, number in whereabouts(done.stdout)] == ["0", "1"]
    assert "good    Horovod" in done.stderr


@pytest.mark.parametrize("ranks", ["", "0", "two"])
def test_a_number_of_ranks_that_is_none(ranks: str) -> None:
    done = launch(str(LAUNCH / "one_host"), ranks, "python", "train.py")
    assert done.returncode == 2
    assert "  launch/one_host RANKS" in done.stderr
    assert f"Received: {ranks} python train.py" in done.stderr


@needs_hosts
def test_on_hosts_of_a_file_over_ssh(hosts: Hosts, tmp_path: Path) -> None:
    key = f"IdentityFile {hosts.key}\\nStrictHostKeyChecking no\\n"
    hosts.run("h1", "bash", "-c", f"printf '{key}' >~/.ssh/config")
    file = tmp_path / "hosts"
    file.write_text("# name slots\nh1 slots=2\n\nh2:1\n")
    done = launch(str(LAUNCH / "hosts"), str(file), *JOB, enter=hosts.enter("h1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert whereabouts(done.stdout) == [("h1", "0"), ("h1", "1"), ("h2", "0")]
    assert "this host is h2" in done.stderr


@pytest.mark.parametrize("hosts", ["", "h1", "h1:0", "h1:2,,h2:2", "h1:2 h2:2"])
def test_a_list_of_hosts_that_is_none(hosts: str) -> None:
    done = launch(str(LAUNCH / "hosts"), hosts, "python", "train.py")
    assert done.returncode == 2
    assert "HOSTS is host1:4,host2:4, or a file" in done.stderr
    assert f"Received: {hosts} python train.py" in done.stderr


@needs_hosts
def test_a_host_that_does_not_resolve_is_named_before_the_job_starts() -> None:
    done = launch(str(LAUNCH / "hosts"), "nobody.invalid:2", *JOB)
    assert done.returncode == 1
    assert "ssh nobody.invalid must work without a password" in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Slurm on two nodes."""
    with slurm.cluster(2) as made:
        yield made


@needs_slurm
def test_a_batch_job_of_slurm_runs_on_its_nodes(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "output"
    where = ("--nodes", "2", "--ntasks-per-node", "2", "--wait", "--output", str(output))
    cluster.run("sbatch", *where, "--chdir", str(tmp_path), str(LAUNCH / "slurm"), *JOB)
    written = output.read_text()
    assert whereabouts(written) == [("h1", "0"), ("h1", "1"), ("h2", "0"), ("h2", "1")]
    assert written.count(f"in {tmp_path}") == 4


@needs_slurm
def test_a_killed_rank_ends_the_job_of_slurm(cluster: Cluster) -> None:
    job = (sys.executable, str(JOBS / "endless.py"), "killed-in-slurm")
    where = ("--nodes", "2", "--ntasks-per-node", "1")
    running = cluster.start("salloc", *where, str(LAUNCH / "slurm"), *job)
    pids: dict[int, int] = {}
    for line in running.stdout:
        if found := re.search(r"running rank=(\d+) pid=(\d+)", line):
            pids[int(found[1])] = int(found[2])
            if len(pids) == 2:
                break
    os.kill(pids[1], signal.SIGKILL)
    written, _ = running.communicate(timeout=120)
    assert running.returncode != 0
    assert "rank 1" in written
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids.values()):
        assert time.monotonic() < end, "a rank lives on"
        time.sleep(0.2)


def test_outside_of_an_allocation_the_script_says_how_it_is_used() -> None:
    done = launch(str(LAUNCH / "slurm"), *JOB)
    assert done.returncode == 2
    assert "  sbatch --nodes 2 --ntasks-per-node 4 launch/slurm" in done.stderr
    assert "It runs within an allocation. Received: SLURM_JOB_NODELIST= and" in done.stderr
