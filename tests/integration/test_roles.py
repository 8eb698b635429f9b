"""Trainers with TensorFlow and Horovod whose tables lie on embedding nodes, and kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.forked_job import forked_jobs
from tests.integration.restarts import Restarts, begun_at
from tests.reference.clusters import found, node, own_memory, pid_of, until, write_cluster
from tfhybrid.nodes import launching
from tfhybrid.nodes.cluster_file import Cluster

CLI = (sys.executable, "-m", "tfhybrid.cli", "nodes")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roles")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    """Two embedding nodes, started and ended by the command line."""
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


def test_data_nodes_read_what_is_trained(cluster: Cluster, folder: Path) -> None:
    (folder / "read").mkdir()
    job = "tests/integration/jobs/data_nodes.py"
    with forked_jobs(folder / "read") as jobs:
        started = jobs.start({"localhost": 2}, job, "request", "unasked", env=environment(cluster))
        assert started.succeed().count("exact on this rank") == 2


def test_a_killed_job_goes_on_from_the_memory_of_nodes(
    cluster: Cluster, folder: Path, shm_directory: Path
) -> None:
    """All trainers are killed, then one node: at the end all is as if nobody had been."""
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


def test_jobs_end_and_nodes_stay(
    cluster: Cluster, start_job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer is killed, then a node under the next job, which names it."""
    for name, value in environment(cluster).items():
        monkeypatch.setenv(name, value)
    epoch = found(cluster).epoch
    job = start_job(2, "killed")
    until(lambda: node(cluster, "embedding-0")["numbers"].get("updates", 0) > 3)
    job.kill(1)
    assert job.wait(60) != 0
    until(lambda: node(cluster, "embedding-0")["numbers"].get("jobs") == 0)
    assert found(cluster).epoch == epoch
    job = start_job(2, "next")
    pid = pid_of(cluster, "embedding-1")
    os.kill(pid, signal.SIGKILL)
    assert job.wait(60) != 0
    assert "embedding-1" in job.output
    until(lambda: launching.status(cluster)["epoch"] == epoch + 1)
    assert found(cluster).epoch == epoch + 1
