"""Trainers with TensorFlow and Horovod whose tables lie on embedding nodes, and kill -9."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates.authority import Authority
from tests.support.jobs.forked_job import forked_jobs
from tests.support.jobs.restarts import Restarts, begun_at
from tests.support.roles.clusters import (
    certified,
    killed,
    node,
    own_memory,
    pid_of,
    until,
    write_cluster,
)
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster

CLI = (sys.executable, "-m", "tfhybrid.cli", "nodes")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roles")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    """Two embedding nodes and two data nodes, started and ended by the command line."""
    script = Path("tests/integration/jobs/data_nodes.py").resolve()
    made = write_cluster(folder, 2, f"  data: {{count: 2, script: {script}}}\n")
    file = str(folder / "cluster.yaml")
    with own_memory():
        started = subprocess.run([*CLI, "up", file], capture_output=True, text=True, check=True)
        assert f"TFHYBRID_NODES={made.listen}:{made.port}" in started.stdout
        yield made
        again = subprocess.run([*CLI, "up", file], capture_output=True, text=True, check=False)
        assert (again.returncode, "already" in again.stderr) == (1, True)
        subprocess.run([*CLI, "down", file], capture_output=True, text=True, check=True)
        gone = subprocess.run([*CLI, "status", file], capture_output=True, text=True, check=False)
        assert (gone.returncode, "cannot be reached" in gone.stderr) == (1, True)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same with certificates, for the jobs of its tests too."""
    authority = Authority(tmp_path_factory.mktemp("tls") / "ca")
    made = write_cluster(tmp_path_factory.mktemp("encrypted"), 2)
    with own_memory(), certified(authority.files("here")):
        launching.up(made)
        yield made
        launching.down(made)


def environment(cluster: Cluster) -> dict[str, str]:
    return {
        "TFHYBRID_NODES": f"{cluster.listen}:{cluster.port}",
        "TFHYBRID_NODES_TOKEN": str(cluster.token_file),
    }


def test_bits_and_checkpoints_are_those_of_a_run_without_nodes(
    cluster: Cluster, folder: Path
) -> None:
    job = "tests/integration/jobs/roles.py"
    cases = ("adagrad:frequency", "clipped:mean", "forgetting")
    with forked_jobs(folder) as jobs:
        started = jobs.start({"localhost": 2}, job, str(folder), *cases, env=environment(cluster))
        assert started.succeed().count("exact on this rank") == 2


def test_rank_1_goes_on_alone_after_rank_0_has_come_to_its_end(
    cluster: Cluster, folder: Path
) -> None:
    (folder / "alone").mkdir()
    with forked_jobs(folder / "alone") as jobs:
        job = "tests/integration/jobs/alone.py"
        output = jobs.start({"localhost": 2}, job, env=environment(cluster)).succeed()
    assert re.search(r"alone: 2000 rows of 2 hosts, error 0\.\d", output), output


def test_data_nodes_read_what_is_trained(cluster: Cluster, folder: Path) -> None:
    (folder / "read").mkdir()
    job = "tests/integration/jobs/data_nodes.py"
    told = str(folder / "cluster.yaml"), "pull", "push"
    with forked_jobs(folder / "read") as jobs:
        started = jobs.start({"localhost": 2}, job, *told, env=environment(cluster))
        assert started.succeed().count("exact on this rank") == 2
    killed(cluster, "embedding-1")  # which was drained, and is ready when it is back
    assert launching.add(cluster) == 0


def test_a_killed_job_resumes_from_the_memory_of_nodes(
    cluster: Cluster, folder: Path, shm_directory: Path
) -> None:
    """All trainers are killed, then one node, another drains: all is as if nothing had been."""
    slots = {"localhost": 2}
    (folder / "ranks").mkdir()
    with forked_jobs(folder / "ranks") as jobs:
        whole = Restarts(jobs, slots, folder / "whole", shm_directory, steps=60)
        whole.env |= environment(cluster)
        _, wanted = whole.finish()
        run = Restarts(jobs, slots, folder / "killed", shm_directory, steps=60)
        run.env |= environment(cluster)
        run.kill_in_training(0.2)
        job = run.start(seconds=0.02)
        job.wait_for("trained rank", 2)
        pid = pid_of(cluster, "embedding-0")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert any(status != 0 for status in job.wait())
        assert begun_at(job.output) > 0
        until(lambda: launching.status(cluster)["missing"] == [])
        output, found_digests = run.finish()
        assert begun_at(output) >= begun_at(job.output)
        assert "Resumed from memory" in output
        assert found_digests == wanted
        moved = Restarts(jobs, slots, folder / "moved", shm_directory, steps=60)
        moved.env |= environment(cluster)
        job = moved.start(seconds=0.05, follow=5)
        job.wait_for("trained rank", 2)
        assert launching.drain(cluster, "embedding-1") == 1
        assert re.findall(r"digests (rank=.*)", job.succeed()) == wanted
    assert {each["node"] for each in launching.status(cluster)["allocation"]} == {"embedding-0"}
    killed(cluster, "embedding-1")  # ready when it is back
    assert launching.add(cluster) == 0
    assert len({each["node"] for each in launching.status(cluster)["allocation"]}) == 2


def test_jobs_end_and_nodes_stay(
    encrypted: Cluster, start_job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer is killed, then a node under the next job, which names it; all through TLS."""
    for name, value in environment(encrypted).items():
        monkeypatch.setenv(name, value)
    epoch = launching.status(encrypted)["epoch"]
    job = start_job(2, "killed")
    until(lambda: node(encrypted, "embedding-0")["numbers"].get("updates", 0) > 3)
    job.kill(1)
    assert job.wait(60) != 0
    until(lambda: node(encrypted, "embedding-0")["numbers"].get("jobs") == 0)
    assert launching.status(encrypted)["epoch"] == epoch
    job = start_job(2, "next")
    pid = pid_of(encrypted, "embedding-1")
    os.kill(pid, signal.SIGKILL)
    assert job.wait(60) != 0
    assert "embedding-1" in job.output
    until(lambda: launching.status(encrypted)["epoch"] == epoch + 1)
    assert launching.status(encrypted)["epoch"] == epoch + 1
