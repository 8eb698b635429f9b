"""The stores of this host, seen by a process that belongs to none of their jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tfhybrid.cli.main import app

# Trains until it is told to stop; its job has two tables.
JOB = """
import sys
import keras, numpy as np
import tfhybrid
tfhybrid.init("seen")
evicting = tfhybrid.TableConfig(4, eviction=tfhybrid.Eviction(unseen_steps=2, every=1))
configs = {"item": evicting, "user id": tfhybrid.TableConfig(2)}
layer = tfhybrid.layers.EmbeddingCollection(configs)
inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in configs}
flat = [keras.layers.Flatten()(e) for e in layer(inputs).values()]
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(flat)))
model.compile(tfhybrid.DistributedOptimizer("adagrad"), "mse")
for step, line in enumerate(sys.stdin):
    model.train_on_batch({name: np.array([step]) for name in configs}, np.ones(1))
    print("trained", flush=True)
"""


class RunningJob:
    """A process that does a step whenever it is told to."""

    def __init__(self, shm_directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", JOB],
            env={**os.environ, "TFHYBRID_SHM_DIR": str(shm_directory)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def train(self, steps: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for _ in range(steps):
            self._process.stdin.write("on\n")
            self._process.stdin.flush()
            assert self._process.stdout.readline() == "trained\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def job(shm_directory: Path) -> Iterator[RunningJob]:
    running = RunningJob(shm_directory)
    running.train(5)
    yield running
    running.kill()


@pytest.fixture
def run(shm_directory: Path) -> Callable[..., Result]:
    def run(*arguments: str, status: int = 0) -> Result:
        result = CliRunner().invoke(app, [*arguments, "--shm-dir", str(shm_directory)])
        assert result.exit_code == status, result.output
        return result

    return run


def test_no_stores_are_no_error(run, tmp_path) -> None:
    assert "No stores of this user in" in run("store", "list").stdout
    assert json.loads(run("store", "list", "--json").stdout) == []
    result = CliRunner().invoke(app, ["store", "list", "--shm-dir", str(tmp_path / "nowhere")])
    assert (result.exit_code, result.stdout.count("No stores")) == (0, 1)


def test_a_job_that_runs_is_shown_from_outside(run, job) -> None:
    (store,) = json.loads(run("store", "list", "--json").stdout)
    assert (store["job"], store["living"], store["problem"]) == ("seen", True, "")
    (rank,) = store["ranks"]
    assert (rank["local_rank"], rank["state"]) == (0, "living")
    assert f"pid {job.pid}" in rank["description"]
    item, user = store["tables"]
    assert (item["name"], item["rows"], item["version"], item["evicted"]) == ("item", 2, 5, 3)
    assert (user["name"], user["rows"], user["dim"], user["optimizer"]) == (
        "user id",
        5,
        2,
        "adagrad",
    )
    parts = ("embedding_bytes", "state_bytes", "history_bytes", "index_bytes")
    assert item["bytes"] == sum(item[part] for part in parts) + 4096
    assert store["bytes"] >= item["bytes"] + user["bytes"]
    assert json.loads(run("store", "show", "seen", "--json").stdout) == store
    for text in (run("store", "list").stdout, run("store", "show", "seen").stdout):
        assert "running" in text
    job.train(1)
    assert json.loads(run("store", "show", "seen", "--json").stdout)["tables"][0]["version"] == 6


def test_the_store_of_a_job_that_runs_is_not_removed(run, job) -> None:
    refused = run("store", "remove", "seen", status=1)
    assert f"pid {job.pid}" in refused.output
    assert "End it first" in refused.output
    job.train(1)


def test_what_a_killed_job_left_is_shown_and_removed(run, job, shm_directory) -> None:
    job.kill()
    (store,) = json.loads(run("store", "list", "--json").stdout)
    assert (store["living"], store["ranks"][0]["state"]) == (False, "died")
    assert [table["rows"] for table in store["tables"]] == [2, 5]
    assert "dead" in run("store", "list").stdout
    assert "Removed the store of seen" in run("store", "remove", "seen").stdout
    assert json.loads(run("store", "list", "--json").stdout) == []
    assert not list(shm_directory.glob("tfhybrid-*-seen"))


def test_a_job_that_is_not_there_is_named_with_those_that_are(run, job) -> None:
    assert "has stores of the jobs ['seen']. Received: 'sene'" in " ".join(
        run("store", "show", "sene", status=1).output.split()
    )
    assert "There is no store of a job 'sene'" in run("store", "remove", "sene", status=1).output


def test_a_damaged_store_is_named_and_the_others_are_shown(run, job, shm_directory) -> None:
    job.kill()
    (directory,) = shm_directory.glob("tfhybrid-*-seen")
    table = directory / "item.table"
    content = bytearray(table.read_bytes())
    content[60] ^= 1
    table.write_bytes(content)
    item, user = json.loads(run("store", "list", "--json").stdout)[0]["tables"]
    assert "is damaged: wanted checksum" in item["problem"]
    assert (user["problem"], user["rows"]) == ("", 5)
    (directory / "store").write_bytes(b"")
    (store,) = json.loads(run("store", "list", "--json").stdout)
    assert store["tables"] == []
    assert store["problem"]
    run("store", "show", "seen")


def test_top_tells_what_happens_in_a_second(run, job) -> None:
    looks = run("top", "seen", "--count", "2", "--interval", "0.1", "--json").stdout
    decoder = json.JSONDecoder()
    first, end = decoder.raw_decode(looks)
    second, _ = decoder.raw_decode(looks[end:].lstrip())
    assert first["tables"][0]["rows"] == second["tables"][0]["rows"] == 2
    assert second["rates"]["item"] == {"updates": 0.0, "new_rows": 0.0, "evicted_rows": 0.0}
    drawn = run("top", "seen", "--count", "1", "--interval", "0.1").stdout
    assert "updates/s" in drawn
    job.kill()
    ended = run("top", "seen", "--interval", "0.1", "--json").stdout
    assert json.loads(ended)["living"] is False
