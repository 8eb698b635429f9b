"""Data nodes as processes, without TensorFlow, and kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.roles.clusters import (
    killed,
    node,
    own_memory,
    pid_of,
    write_cluster,
)
from tests.support.roles.colocated_run import EPOCHS, colocated, rows_of
from tests.support.roles.data_script import SCRIPT, wanted
from tests.support.roles.moving_trainers import SHARDS, Trainers
from tests.support.roles.numpy_trainers import connected
from tests.support.roles.split_roles import STEPS, train_fed
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.data.data_node import load, maker
from tfhybrid.data_nodes.key_links import NOTIFY, PULL, PUSH
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.errors import ConfigError, DataError, StoreError

TOLD_SECONDS = 2.0  # within which nodes have told their numbers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two embedding nodes with two shards each, and two data nodes."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "script.py").write_text(SCRIPT)
    made = write_cluster(folder, 2, "  data: {count: 2, script: script.py}\n", shards=SHARDS)
    with own_memory():
        launching.up(made)
        yield made
        launching.down(made)


@pytest.mark.parametrize("delivery", [PULL, PUSH])
def test_a_data_node_that_is_killed_reads_again(
    cluster: Cluster, tmp_path: Path, delivery: str
) -> None:
    def kill(epoch: int, number: int) -> None:
        if (epoch, number) == (1, 2):
            killed(cluster, "data-0")

    links: list[NodeLinks] = []
    with connected(cluster, tmp_path, 1, f"job-{delivery}", links=links) as engines:
        train_fed(engines[0], links[0], wanted(delivery), EPOCHS, kill)
        found = rows_of(engines[0], 1)
    assert node(cluster, "data-1")["state"] == "ready"
    for rows, same in zip(found, colocated(tmp_path / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)


def sent(cluster: Cluster) -> float:
    """Batches of all data nodes, as they last told."""
    return sum(node(cluster, f"data-{number}")["numbers"]["batches"] for number in (0, 1))


@pytest.mark.parametrize("delivery", [PULL, PUSH])
def test_a_node_that_stands_still_holds_up_no_more_than_credits(
    cluster: Cluster, tmp_path: Path, delivery: str
) -> None:
    """Meanwhile data nodes send what was asked for ahead, and training goes on afterwards."""
    held: list[float] = []

    def resume(pid: int) -> None:
        held.append(sent(cluster))
        os.kill(pid, signal.SIGCONT)

    def stop(epoch: int, number: int) -> None:
        if (epoch, number) == (0, 1):
            pid = pid_of(cluster, "embedding-0")
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(3.0, resume, (pid,)).start()

    links: list[NodeLinks] = []
    before = -1.0
    while (told := sent(cluster)) != before:  # until it stays
        before = told
        time.sleep(TOLD_SECONDS)
    with connected(cluster, tmp_path, 1, f"still-{delivery}", links=links) as engines:
        train_fed(engines[0], links[0], wanted(delivery), EPOCHS, stop)
        found = rows_of(engines[0], 1)
    taken, ahead = 2, wanted(delivery).ahead
    assert len(held) == 1
    assert taken <= held[0] - before <= taken + ahead
    for rows, same in zip(found, colocated(tmp_path / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)


@pytest.mark.parametrize(("delivery", "dies"), [(PULL, False), (NOTIFY, True), (PUSH, True)])
def test_shards_move_between_epochs_and_in_the_midst_of_them(
    cluster: Cluster, tmp_path: Path, delivery: str, dies: bool
) -> None:
    """Key handles name shards, so they mean the same keys when a shard has another node."""
    links: list[NodeLinks] = []
    moved_among = []
    with connected(cluster, tmp_path, 1, f"job-{delivery}-{dies}", links=links) as engines:
        trainers = Trainers(cluster, engines, links, f"job-{delivery}-{dies}")

        def move(epoch: int, number: int) -> None:
            if dies and (epoch, number) == (1, 3):
                os.kill(pid_of(cluster, "data-0"), signal.SIGKILL)
            if number in ((-1, 0, 3, STEPS - 1), (-1, 3))[epoch]:  # there and back
                moved_among.append(trainers.move_amid_batches(1))
            if (epoch, number) == (0, 2):
                moved_among.append(trainers.move_amid_batches(2))
            if dies and (epoch, number) == (0, 3):
                os.kill(pid_of(cluster, "data-0"), signal.SIGKILL)

        train_fed(engines[0], links[0], wanted(delivery), EPOCHS, move)
        found = rows_of(engines[0], 1)
    assert moved_among == [0, 1, 1, 1, 1, 0, 1]
    for rows, same in zip(found, colocated(tmp_path / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)


def test_a_shard_that_cannot_move_stays_with_the_batches_of_its_node(
    cluster: Cluster, tmp_path: Path
) -> None:
    links: list[NodeLinks] = []
    with connected(cluster, tmp_path, 1, "staying", links=links) as engines:
        trainers = Trainers(cluster, engines, links, "staying")

        def refuse(_origin: str, _to: str) -> None:
            raise StoreError("for a test")

        def move(epoch: int, number: int) -> None:
            if number == 3:
                trainers.move_amid_batches(1, before=refuse)

        before = links[0].nodes.names
        train_fed(engines[0], links[0], wanted(PUSH), EPOCHS, move)
        found = rows_of(engines[0], 1)
        assert links[0].nodes.names == before
    for rows, same in zip(found, colocated(tmp_path / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)


def test_a_data_node_needs_tensorflow_only_for_its_script() -> None:
    code = (
        "import sys, tfhybrid.data.data_node; print({'tensorflow', 'horovod'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.strip() == "set()", told


def test_functions_are_called_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "a_script.py").write_text(SCRIPT)
    make = maker(load(str(tmp_path / "a_script.py")))
    assert len(list(make("dataset", (0, 1), {"steps": 2}))) == 2
    with pytest.raises(ConfigError, match="Received: 'absent'"):
        make("absent", (0, 1), {})
    with pytest.raises(DataError, match="no such disk"):
        make("broken", (0, 1), {})
    with pytest.raises(DataError, match="broken of a_script failed"):
        make("broken", (0, 1), {"steps": 2})
    (tmp_path / "bad_script.py").write_text("import nothing_of_the_kind")
    with pytest.raises(ConfigError, match="imports its script"):
        load(str(tmp_path / "bad_script.py"))
