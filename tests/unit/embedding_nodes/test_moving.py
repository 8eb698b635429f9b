"""Shares of tables move between real nodes under trainers: the bits of a run without moves."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.core.sharded_tables import ADAGRAD, TABLES, train
from tests.support.roles.clusters import (
    found,
    killed,
    member_of,
    node,
    own_memory,
    pid_of,
    until,
    write_cluster,
)
from tests.support.roles.moving_trainers import SHARDS, digests, trainers
from tests.support.roles.numpy_trainers import SILENCE
from tfhybrid.cluster import launching
from tfhybrid.cluster.balance import Move
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.metadata_node import MetadataNode
from tfhybrid.embedding_nodes.node_session import JobOnNodes, find_and_begin
from tfhybrid.embedding_nodes.nodes_table_writer import NodesTableWriter
from tfhybrid.errors import StaleEpochError, StoreError, TfhybridError

STEPS = 12
CURSORS = ("checkpoint", "another")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two embedding nodes with two shards each."""
    folder = tmp_path_factory.mktemp("cluster")
    made = write_cluster(folder, 2, shards=SHARDS)
    with own_memory():
        launching.up(made)
        yield made
        launching.down(made)


def whole_run(cluster: Cluster, folder: Path, count: int) -> list[int]:
    with trainers(cluster, folder, count, "whole") as run:
        train(run.engines, steps=STEPS)
        return digests(run.engines[0])


def owners(cluster: Cluster) -> list[str]:
    return [each["node"] for each in launching.status(cluster)["allocation"]]


@pytest.mark.parametrize("count", [1, 2])
def test_rows_move_between_steps(cluster: Cluster, tmp_path: Path, count: int) -> None:
    wanted = whole_run(cluster, tmp_path, count)
    before = owners(cluster)
    with trainers(cluster, tmp_path, count) as run:
        train(run.engines, steps=3)
        run.move(0)
        train(run.engines, first=3, steps=2)
        run.move(3)  # the other way
        run.move(1)
        train(run.engines, first=5, steps=4)
        run.move(0)  # and back, where it has lain
        train(run.engines, first=9, steps=STEPS - 9)
        assert digests(run.engines[0]) == wanted
        assert node(cluster, "embedding-0")["numbers"]["shares"] == 2
    assert owners(cluster) != before


def test_nodes_are_added_and_drained_under_a_job(cluster: Cluster, tmp_path: Path) -> None:
    wanted = whole_run(cluster, tmp_path, 2)
    small = write_cluster(tmp_path, 1, shards=3)
    file = tmp_path / "cluster.yaml"
    launching.up(small)
    try:
        with trainers(small, tmp_path, 2) as run:
            train(run.engines, steps=4)
            assert run.follow() == []
            file.write_text(file.read_text().replace("count: 1", "count: 2"))
            assert launching.add(Cluster.read(file)) == 1
            assert run.follow() == [Move(2, "embedding-0", "embedding-1")]
            train(run.engines, first=4, steps=4)
            assert launching.drain(small, "embedding-0") == 2
            assert run.follow() == [
                Move(0, "embedding-0", "embedding-1"),
                Move(1, "embedding-0", "embedding-1"),
            ]
            train(run.engines, first=8, steps=STEPS - 8)
            assert digests(run.engines[0]) == wanted
        with trainers(small, tmp_path, 1, "next") as run:  # without the node that drained
            train(run.engines, steps=1)
        until(lambda: all(not each["numbers"]["jobs"] for each in launching.status(small)["nodes"]))
        killed(small, "embedding-0")
        until(lambda: node(small, "embedding-0")["state"] == "ready")
        assert launching.add(Cluster.read(file)) == 0  # at once: no job runs
        assert owners(small) == ["embedding-1", "embedding-1", "embedding-0"]
    finally:
        launching.down(small)


def test_a_job_begins_where_the_last_one_left_the_shards(cluster: Cluster, tmp_path: Path) -> None:
    wanted = whole_run(cluster, tmp_path, 1)
    with trainers(cluster, tmp_path, 1) as run:
        train(run.engines, steps=2)
        run.move(2)
    with trainers(cluster, tmp_path, 1, "next") as run:
        train(run.engines, steps=STEPS)
        assert digests(run.engines[0]) == wanted


def test_a_move_of_another_epoch_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    wanted = whole_run(cluster, tmp_path, 1)
    with trainers(cluster, tmp_path, 1) as run:
        train(run.engines, steps=2)
        nodes = found(cluster)
        with run.metadata() as caller:
            epoch, stays = nodes.allocation_epoch, Move(0, nodes.names[0], nodes.names[0])
            with pytest.raises(StaleEpochError, match=f"epoch {epoch}"):
                caller.call(MetadataNode.move, stays, epoch - 1)
            with pytest.raises(StoreError, match="The owners of the shards are"):
                caller.call(MetadataNode.move, dataclasses.replace(stays, origin="nobody"), epoch)
        train(run.engines, first=2, steps=STEPS - 2)
        assert digests(run.engines[0]) == wanted


def test_a_job_that_was_told_of_owners_before_asks_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = found(cluster)
    told = [dataclasses.replace(nodes, allocation_epoch=nodes.allocation_epoch - 1), nodes]
    monkeypatch.setattr("tfhybrid.embedding_nodes.node_session.find_nodes", lambda *_: told.pop(0))
    member = member_of(cluster, "a test", SILENCE)
    joined_as, calls = find_and_begin(member, JobOnNodes("job", [0]))
    with contextlib.closing(calls):
        assert joined_as == nodes
    assert told == []


def test_what_changed_before_a_move_is_saved_behind_it(cluster: Cluster, tmp_path: Path) -> None:
    with trainers(cluster, tmp_path, 1, optimizer=ADAGRAD) as run:  # decay changes all rows
        train(run.engines, steps=2)
        dim = TABLES["item"]
        writer = NodesTableWriter(run.engines[0], "item", dim, (1, dim), None, "item")
        for cursor in CURSORS:
            writer.track_changes(cursor)
        train(run.engines, first=2, steps=1)
        before = owners(cluster)
        writer.freeze(CURSORS[0], only_changed=True)
        run.move(0)  # not while a table is being saved
        assert owners(cluster) == before
        writer.thaw()
        train(run.engines, first=3, steps=1)
        run.move(0)
        assert owners(cluster) != before
        train(run.engines, first=4, steps=1)
        for cursor in CURSORS:
            assert writer.freeze(cursor, only_changed=True).whole
            writer.track_changes(cursor)
            writer.thaw()
        train(run.engines, first=5, steps=1)
        for cursor in CURSORS:
            assert not writer.freeze(cursor, only_changed=True).whole
            writer.thaw()


def kill(cluster: Cluster, name: str) -> None:
    """Kills a node, and waits until the metadata node or the supervisor knows."""
    pid = pid_of(cluster, name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(
        lambda: (
            pid_of(cluster, name) != pid
            or (name != "metadata" and node(cluster, name)["state"] == "lost")
        )
    )


def resumed(cluster: Cluster, folder: Path) -> list[int]:
    """Goes on from the memory of nodes and trainers, to the end."""
    until(lambda: launching.status(cluster)["missing"] == [])
    with trainers(cluster, folder, 1, resumes=True, recovers=True) as run:
        begun = int(run.engines[0].table_stats("item").version)
        train(run.engines, first=begun, steps=STEPS - begun)
        return digests(run.engines[0])


@pytest.mark.parametrize("victim", ["origin", "to", "metadata"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_node_is_killed_in_the_midst_of_a_move(
    cluster: Cluster, tmp_path: Path, victim: str, moment: str
) -> None:
    """Each step counts once, whoever dies, before it is stored who owns the shard and after."""
    wanted = whole_run(cluster, tmp_path, 1)
    with contextlib.suppress(TfhybridError), trainers(cluster, tmp_path, 1, resumes=True) as run:
        train(run.engines, steps=5)

        def killing(origin: str, to: str) -> None:
            kill(cluster, {"origin": origin, "to": to}.get(victim, victim))

        run.move(0, resumes=True, **{moment: killing})
        train(run.engines, first=5, steps=STEPS - 5)
    assert resumed(cluster, tmp_path) == wanted


def test_the_trainers_die_in_the_midst_of_a_move(cluster: Cluster, tmp_path: Path) -> None:
    wanted = whole_run(cluster, tmp_path, 1)

    def dies(_origin: str, _to: str) -> None:
        raise InterruptedError

    for moment in ("before", "after"):
        with (
            contextlib.suppress(InterruptedError),
            trainers(cluster, tmp_path, 1, resumes=True, recovers=moment == "after") as run,
        ):
            begun = int(run.engines[0].table_stats("item").version)
            train(run.engines, first=begun, steps=3)
            run.move(1, resumes=True, **{moment: dies})
    assert resumed(cluster, tmp_path) == wanted
