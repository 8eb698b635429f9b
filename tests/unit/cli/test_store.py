"""The stores of this host, seen by a process that belongs to none of their jobs."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from tests.unit.cli import stepping_job
from tests.unit.conftest import Start
from tfhybrid.cli.main import app
from tfhybrid.cli.store_command import show_tables
from tfhybrid.cli.terminal import console
from tfhybrid.monitoring.report import StoreReport, TableReport, TableSize


class RunningJob:
    """A process that does a step whenever it is told to."""

    def __init__(self, start: Start, shm_directory: Path) -> None:
        self._process, self._connection = start(stepping_job.run, str(shm_directory))
        self.pid = self._process.pid

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self._connection.send("on")
            assert self._connection.recv() == "trained"

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@pytest.fixture
def job(start_forked: Start, shm_directory: Path) -> Iterator[RunningJob]:
    running = RunningJob(start_forked, shm_directory)
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
    assert set(second["rates"]["item"].values()) == {0.0}
    assert {"updates", "new_rows", "evicted_rows"} <= second["rates"]["item"].keys()
    drawn = run("top", "seen", "--count", "1", "--interval", "0.1").stdout
    assert "updates/s" in drawn
    job.kill()
    ended = run("top", "seen", "--interval", "0.1", "--json").stdout
    assert json.loads(ended)["living"] is False


def test_top_answers_prometheus_while_the_job_lives(job, shm_directory) -> None:
    command = [sys.executable, "-m", "tfhybrid.cli", "top", "seen", "--shm-dir", shm_directory]
    top = subprocess.Popen(
        [*command, "--prometheus", "0", "--interval", "0.1"], stdout=subprocess.PIPE, text=True
    )
    port = int(re.search(r"http://127.0.0.1:(\d+)/metrics", top.stdout.readline())[1])
    told = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert 'tfhybrid_rows{table="item"} 2.0' in told
    assert 'tfhybrid_rows{table="user id"} 5.0' in told
    assert 'tfhybrid_ranks{state="living"} 1.0' in told
    job.train(1)
    told = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert 'tfhybrid_updates_total{table="user id"} 6.0' in told
    job.kill()
    assert top.wait(30) == 0


def test_top_serves_prometheus_at_an_address(run, job) -> None:
    for address in ("http", "65536", "localhost", ":9464", "host:0", "-1"):
        refused = run("top", "seen", "--count", "1", "--prometheus", address, status=1)
        wanted = f"PORT, from 0 to 65535, or HOST:PORT. Received: '{address}'"
        assert wanted in " ".join(refused.output.split())
    ended = run("top", "seen", "--count", "1", "--interval", "0.1", "--prometheus", "0")
    assert "http://127.0.0.1:" in ended.output


def test_top_does_not_ask_the_nodes_for_prometheus(run, job, tmp_path) -> None:
    """The metadata node serves its own metrics; this one is not up."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("port: 1\nroles: {embedding: {count: 1}}\n")
    watched = ("top", "seen", "--count", "1", "--interval", "0.1", "--nodes", str(cluster))
    run(*watched, status=1)
    assert "http://127.0.0.1:" in run(*watched, "--prometheus", "0").output


def test_tables_are_shown_in_80_columns(monkeypatch, capsys) -> None:
    """Of real width: no name or number is cut or folded."""
    sizes = {field.name: 123_456_789_000 for field in dataclasses.fields(TableSize)}
    sizes["rows"] = 1_234_567_890
    named = {"name": "user_history", "problem": "", "optimizer": "row_adagrad"}
    table = TableReport(**(sizes | named | {"dim": 128, "evicted": 1_000_000, "version": 81_723}))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(console, "_output", Console(width=80))
    show_tables(StoreReport("job", "directory", 0, "", tables=[table]))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("user_history" in line for line in lines) == 3
    assert "1,234,567,890" in "".join(lines)
    assert "1,000,000" in "".join(lines)
    assert "row_adagrad" in "".join(lines)
