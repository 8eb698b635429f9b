"""Jobs of processes that have neither TensorFlow nor Horovod: the engine through C alone."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import tfhybrid
from tests.reference import training
from tests.unit.core import bare_rank
from tfhybrid.core import engine
from tfhybrid.errors import ConfigError, PeerDiedError, StoreError

HOSTS = sorted(set(bare_rank.HOSTS))


@pytest.fixture
def ranks(shm_directory: Path) -> Iterator[list[Connection]]:
    """All ranks of the job, each host with a folder of its own."""
    context = multiprocessing.get_context("spawn")  # none of what this process has imported
    connections: list[Connection] = []
    processes = []
    for rank, host in enumerate(bare_rank.HOSTS):
        directory = shm_directory / str(host)
        directory.mkdir(exist_ok=True)
        ours, its = context.Pipe()
        process = context.Process(target=bare_rank.run, args=(its, str(directory), rank))
        process.start()
        its.close()
        processes.append(process)
        connections.append(ours)
        if rank % bare_rank.RANKS_PER_HOST == 0:  # a leader, before those that join its store
            assert ours.recv() == "has opened the store"
    for rank, connection in enumerate(connections):
        if rank % bare_rank.RANKS_PER_HOST:
            assert connection.recv() == "has opened the store"
    for connection in connections:
        connection.send("go on")
    yield connections
    for process in processes:
        process.kill()
        process.join()


def test_three_hosts_of_four_ranks_do_three_updates_a_step(ranks: list[Connection]) -> None:
    leaders = ranks[:: bare_rank.RANKS_PER_HOST]
    sent = [leader.recv() for leader in leaders]
    while sent[0]:
        for host, leader in enumerate(leaders):
            leader.send(np.concatenate([words[host if len(words) > 1 else 0] for words in sent]))
        sent = [leader.recv() for leader in leaders]
    tables = _reference()
    keys = [np.array([*table.rows, 10**12]) for table in tables.values()]
    others = [connection for connection in ranks if connection not in leaders]
    assert [*sent, *(connection.recv() for connection in others)] == [[]] * len(ranks)
    digests = []
    for connection in ranks:
        connection.send(keys)
    steps = 2 * bare_rank.STEPS_EACH_WAY
    for connection in ranks:
        rows, versions, digest = connection.recv()
        # As many updates of each host's tables as there were steps: not one for each rank.
        assert versions == [steps, steps]
        for table, of_table, wanted in zip(tables.values(), keys, rows, strict=True):
            np.testing.assert_allclose(wanted, table.lookup(of_table), rtol=2e-5, atol=1e-7)
        digests.append(digest)
    # To the bit: the leaders' with the optimizer's state, which the others do not map.
    of_leaders = digests[:: bare_rank.RANKS_PER_HOST]
    of_others = [digest for digest in digests if digest not in of_leaders]
    assert of_leaders == of_leaders[:1] * len(HOSTS)
    assert of_others == of_others[:1] * (len(ranks) - len(HOSTS))
    for connection in ranks:
        connection.send("end")


def _reference() -> dict[str, training.Table]:
    tables = {
        name: training.Table(
            name,
            tfhybrid.TableConfig(dim, initializer=bare_rank.INITIALIZER),
            training.Adagrad(bare_rank.LEARNING_RATE),
        )
        for name, dim in bare_rank.TABLES.items()
    }
    for step in range(2 * bare_rank.STEPS_EACH_WAY):
        batches = [bare_rank.batch(step, rank) for rank in range(len(bare_rank.HOSTS))]
        samples = [len(keys[0]) for keys, _ in batches]
        for number, table in enumerate(tables.values()):
            of_ranks = [
                training.sum_by_key(keys[number], gradients[number]) for keys, gradients in batches
            ]
            table.update(training.reduce(of_ranks, samples, "frequency"))
    return tables


@pytest.fixture
def tables(job: None) -> dict[str, int]:
    """Two tables, open in the store of a job of one rank."""
    bare_rank.open_tables(bare_rank.TABLES, is_leader=True)
    return bare_rank.TABLES


def test_bad_input_is_named_and_changes_nothing(tables: dict[str, int]) -> None:
    with pytest.raises(StoreError, match="No table named 'shop'"):
        engine.Update("bad", {"shop": 3}, [0], 0)
    with pytest.raises(ConfigError, match="one table or more"):
        engine.Update("bad", {}, [0], 0)
    with pytest.raises(ConfigError, match=r"exchange is 'leaders'.*Received: 'gossip'"):
        engine.Update("bad", tables, [0], 0, exchange="gossip")
    with pytest.raises(ConfigError, match=r"here. Received: 'all_ranks'"):
        engine.Update("bad", tables, [0], 0, exchange="all_ranks")
    with pytest.raises(ConfigError, match=r"wire_dtype is 'float32'.*Received: 'int8'"):
        engine.Update("bad", tables, [0], 0, wire_dtype="int8")
    with pytest.raises(ConfigError, match=r"this rank's too. Received: 2 entries"):
        engine.Update("bad", tables, [0, 1], 2)
    update = engine.Update("bad", tables, [0], 0)
    with pytest.raises(ConfigError, match="other settings"):
        engine.Update("bad", tables, [0], 0, reduction="mean")
    keys, gradients = bare_rank.batch(0, 0)
    with pytest.raises(ConfigError, match=r"Gradients are \[\(40, 3\), \(40, 16\)\]"):
        update.post(keys, gradients[::-1], [0.1, 0.1], samples=40)
    with pytest.raises(ConfigError, match=r"2 tables. Received: \[0.1\]"):
        update.post(keys, gradients, [0.1], samples=40)
    with pytest.raises(StoreError, match="The leader of a host exchanges"):
        update.merge()
    with pytest.raises(StoreError, match="The leader of a host exchanges"):
        update.commit([0.1, 0.1])
    assert engine.read(tables, keys)[1] == [0, 0]


def test_a_failure_is_posted_in_place_of_gradients(tables: dict[str, int]) -> None:
    item, user = tables
    update = engine.Update("failing", tables, [0], 0)
    keys, gradients = bare_rank.batch(0, 0)
    update.post(keys, gradients, [0.1, 0.1], samples=40)
    update.post(keys, gradients, [0.1, 0.1], samples=40, skip=True)
    engine.wait(user)
    before, versions = engine.read(tables, keys)
    assert versions == [2, 2]
    update.post(keys, gradients, [0.1, 0.1], samples=0, failure="the disk is gone")
    with pytest.raises(StoreError, match="the disk is gone"):
        engine.wait(item)
    after, versions = engine.read(tables, keys)
    assert versions == [2, 2]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


def test_a_version_that_does_not_come_is_waited_for_up_to_the_limit(
    tables: dict[str, int],
) -> None:
    keys, _ = bare_rank.batch(0, 0)
    with pytest.raises(PeerDiedError, match="within 20 ms"):
        engine.read(tables, keys, min_versions=[1, 0], timeout_seconds=0.02)


def test_what_it_imports_has_no_tensorflow() -> None:
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, tfhybrid.core.engine\n"
            "assert not {'tensorflow', 'horovod', 'keras'} & set(sys.modules)",
        ],
        check=True,
    )
