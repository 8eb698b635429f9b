"""A job of all roles, one of which is killed at random moments: every batch counts once.

    TFHYBRID_SOAK_KILLS=100 python -m pytest -s --timeout 0 tests/soak/test_role_kills.py

prints each kill, and writes the seconds that recoveries took, by role, to `build/recovery.json` (or
to TFHYBRID_SOAK_RECOVERY).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.soak.forever import all_keys, batch
from tests.support.roles.clusters import (
    own_memory,
    pid_of,
    until,
    write_cluster,
)
from tests.support.roles.owner_engines import BY_KEY, opened
from tests.support.roles.split_roles import TABLES, step
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster

KILLS = int(os.environ.get("TFHYBRID_SOAK_KILLS", "100"))
ROOT = Path(__file__).parents[2]
RECOVERY = Path(os.environ.get("TFHYBRID_SOAK_RECOVERY", ROOT / "build" / "recovery.json"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
VICTIMS = ("data-0", "data-1", "embedding-0", "embedding-1", "metadata", "trainer")
JOB = "tests/soak/jobs/fed_forever.py"
BATCHES = 8  # more than a trainer has asked for ahead
SECONDS = 120.0  # within which training goes on


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    data = "  data: {count: 2, script: tests.soak.forever}\n"
    made = write_cluster(tmp_path, 2, data)
    with own_memory():
        launching.up(made)
        yield made
        launching.down(made)


class Job:
    """The trainer's process, which is started again whenever it has ended.

    Args:
        cluster: That feeds it.
        folder: Of its store.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._output = ""
        self._begun = False
        self.steps: list[int] = []  # that were trained, as the trainers said

    def pid(self) -> int | None:
        """Of the trainer."""
        return None if self._process is None else self._process.pid

    def train_one(self) -> None:
        """Waits until one batch more is trained."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if self._process is None:
                until(lambda: launching.status(self._cluster)["missing"] == [], 60)
                self._start("recover" if self._begun else "train")
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=0.05)
                self._output += line
                if line.startswith("trained"):
                    self._begun = True
                    self.steps.append(int(line.split()[1]))
                    return
                continue
            if self._process is not None and self._process.poll() is not None:
                self._process = None
        raise AssertionError(f"no batch is trained: {self._output[-3000:]}")

    def catch_up(self) -> None:
        """Takes what the trainer has said so far."""
        while not self._lines.empty():
            self.train_one()

    def longest_pause(self, batches: int) -> float:
        """Waits for so many batches; returns the seconds of the longest pause, from now on."""
        longest, last = 0.0, time.monotonic()
        for _ in range(batches):
            self.train_one()
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        return longest

    def rows(self) -> tuple[int, list[np.ndarray]]:
        """Kills the trainer; returns how many steps the nodes have applied, and the rows."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        until(lambda: launching.status(self._cluster)["missing"] == [], 60)
        steps = str(max(self.steps) + 10)  # some more than any trainer has said
        told = subprocess.run(
            self._command("rows", steps),
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        with np.load(self._folder / "rows.npz") as found:
            return int(told.stdout.split()[-1]), [found[name] for name in found.files]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _command(self, what: str, steps: str = "0") -> list[str]:
        file = str(self._cluster.directory.parent / "cluster.yaml")
        return [sys.executable, JOB, file, str(self._folder), what, steps]

    def _start(self, what: str) -> None:
        self._process = subprocess.Popen(
            self._command(what),
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)


def expected(folder: Path, steps: int, more: int) -> list[np.ndarray]:
    """The rows of a run in one process, without nodes."""
    folder.mkdir()
    with opened(folder, 1, 0, [BY_KEY] * 2) as engines:
        update = engines[0].open_update("sgd", TABLES)
        for number in range(steps):
            step(engines[0], update, batch(number), handles=False)
        for name in TABLES:
            engines[0].wait(name)
        keys = all_keys(more).values()
        return [
            engines[0].lookup(name, dim, some)
            for (name, dim), some in zip(TABLES.items(), keys, strict=True)
        ]


def report(seconds: dict[str, list[float]]) -> None:
    """Writes the seconds for which no batch was trained, by the role that was killed."""
    told = {
        role: {"kills": len(some), "p50": statistics.median(some), "max": max(some)}
        for role, some in sorted(seconds.items())
    }
    RECOVERY.parent.mkdir(exist_ok=True)
    RECOVERY.write_text(json.dumps(told, indent=2) + "\n")
    sys.stdout.write(f"{json.dumps(told)}\n")


def test_every_batch_counts_once_whoever_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    seconds: dict[str, list[float]] = {}
    with contextlib.closing(Job(cluster, tmp_path)) as job:
        for kill in range(KILLS):
            job.train_one()
            threading.Event().wait(float(random.uniform(0, 0.5)))
            name = VICTIMS[kill % len(VICTIMS)] if kill < len(VICTIMS) else random.choice(VICTIMS)
            pid = job.pid() if name == "trainer" else pid_of(cluster, str(name))
            if pid is None:
                continue  # it is not back from the kill before
            job.catch_up()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            took = job.longest_pause(BATCHES)
            seconds.setdefault(str(name).partition("-")[0], []).append(took)
            sys.stdout.write(f"kill {kill + 1} of {KILLS}: {name}, {took:.1f} s\n")
            sys.stdout.flush()
        version, found = job.rows()
        more = max(job.steps) + 10
    assert [*job.steps] == sorted(set(job.steps)), "a batch was trained twice"
    for rows, same in zip(found, expected(tmp_path / "whole", version, more), strict=True):
        np.testing.assert_array_equal(rows, same)
    report(seconds)
