"""Shares move between nodes all the time, and whoever takes part is killed at random moments."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.core.sharded_tables import train
from tests.support.roles.clusters import (
    own_memory,
    pid_of,
    until,
    write_cluster,
)
from tests.support.roles.moving_trainers import (
    NAMES,
    Trainers,
    digests,
    trainers,
)
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.errors import TfhybridError

KILLS = int(os.environ.get("TFHYBRID_SOAK_KILLS", "100"))
SHARDS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = write_cluster(tmp_path, len(NAMES), shards=SHARDS)
    with own_memory():
        launching.up(made)
        yield made
        launching.down(made)


def killed_after(cluster: Cluster, name: str, seconds: float) -> None:
    threading.Event().wait(seconds)
    pid = pid_of(cluster, name)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def train_and_move(run: Trainers, random: np.random.Generator, step: int) -> int:
    """Trains and moves shards until somebody is dead, or for some steps; returns the next step."""
    for _ in range(8):
        train(run.engines, first=step, steps=1)
        step += 1
        run.move(int(random.integers(SHARDS)), resumes=True)
    return step


def test_each_step_counts_once_whoever_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    random, step = np.random.default_rng(3), 0
    for kill in range(KILLS):
        until(lambda: launching.status(cluster)["missing"] == [], 60)
        name = str(random.choice([*NAMES, "metadata"]))
        with contextlib.suppress(TfhybridError):
            recovers = kill > 0
            with trainers(cluster, tmp_path, 1, resumes=True, recovers=recovers) as run:
                step = int(run.engines[0].table_stats("item").version)
                arguments = (cluster, name, float(random.uniform(0, 0.5)))
                killer = threading.Thread(target=killed_after, args=arguments)
                killer.start()
                try:
                    step = train_and_move(run, random, step)
                finally:
                    killer.join()
    until(lambda: launching.status(cluster)["missing"] == [], 60)
    with trainers(cluster, tmp_path, 1, resumes=True, recovers=True) as run:
        step = int(run.engines[0].table_stats("item").version)
        found = digests(run.engines[0])
    assert step >= KILLS
    with trainers(cluster, tmp_path, 1, "whole") as run:
        train(run.engines, steps=step)
        assert digests(run.engines[0]) == found
