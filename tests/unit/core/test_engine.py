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
from tests.support.core.host_exchange import HostExchange
from tests.support.reference import training
from tests.unit.core import bare_rank
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import UpdateChoices
from tfhybrid.errors import ConfigError, PeerDiedError, StoreError

TABLES = bare_rank.TABLES


@pytest.fixture
def ranks(shm_directory: Path, world: tuple[int, ...]) -> Iterator[list[Connection]]:
    """All ranks of the job, each host with a folder of its own."""
    hosts = bare_rank.hosts_of(world)
    context = multiprocessing.get_context("spawn")  # none of what this process has imported
    connections: list[Connection] = []
    for rank, host in enumerate(hosts):
        directory = shm_directory / str(host)
        directory.mkdir(exist_ok=True)
        ours, its = context.Pipe()
        process = context.Process(target=bare_rank.run, args=(its, str(directory), world, rank))
        process.start()
        its.close()
        connections.append(ours)
        if rank == hosts.index(host):  # a leader, before those that join its store
            assert ours.recv() == "has opened the store"
    for rank, connection in enumerate(connections):
        if rank != hosts.index(hosts[rank]):
            assert connection.recv() == "has opened the store"
    for connection in connections:
        connection.send("go on")
    yield connections
    for process in multiprocessing.active_children():
        process.kill()
        process.join()


@pytest.mark.parametrize(
    "world", [(1,), (2,), (3,), (4,), (8,), (1, 1), (3, 1), (1, 2, 4), (4, 4, 4), (1,) * 6], ids=str
)
def test_training_is_exact(ranks: list[Connection], world: tuple[int, ...]) -> None:
    """Each host does an update a step, not each rank: 3 hosts of 4 ranks do 3 updates, not 12."""
    hosts = bare_rank.hosts_of(world)
    leaders = [hosts.index(host) for host in range(len(world))]
    assert _carry(ranks, leaders) == [("done", [])] * len(ranks)
    steps = len(bare_rank.EXCHANGES) * bare_rank.STEPS_EACH_WAY
    tables = _reference(len(ranks), steps)
    keys = [np.array([*table.rows, 10**12]) for table in tables.values()]
    samples = sum(
        len(bare_rank.batch(step, rank)[0][0])
        for step in range(steps)
        for rank in range(len(ranks))
    )
    digests = []
    for connection in ranks:
        connection.send(keys)
    for rank, connection in enumerate(ranks):
        rows, versions, digest, counted, moved = connection.recv()
        if rank in leaders:
            expected = {"steps": steps, "samples": samples} | moved
            assert counted == dict.fromkeys(native.COUNTERS, 0) | expected
        # As many updates of each host's tables as there were steps: not one for each rank.
        assert versions == [steps, steps]
        for table, of_table, wanted in zip(tables.values(), keys, rows, strict=True):
            np.testing.assert_allclose(wanted, table.lookup(of_table), rtol=2e-5, atol=1e-7)
        digests.append(digest)
    # To the bit: the leaders' with the optimizer's state, which the others do not map.
    of_leaders = [digests[leader] for leader in leaders]
    of_others = [digest for digest in digests if digest not in of_leaders]
    assert of_leaders == of_leaders[:1] * len(world)
    assert of_others == of_others[:1] * (len(ranks) - len(world))
    for connection in ranks:
        connection.send("end")


@pytest.mark.parametrize("world", [(1, 2)], ids=str)
@pytest.mark.parametrize("carried", range(18))
def test_what_a_job_killed_in_an_exchange_leaves_is_a_step(
    ranks: list[Connection], world: tuple[int, ...], carried: int, shm_directory: Path
) -> None:
    """All are killed when some have what was sent, and some have not."""
    hosts = bare_rank.hosts_of(world)
    _carry(ranks, [0, 1], rounds=carried)
    for process in multiprocessing.active_children():
        process.kill()
        process.join()
    engines = [Engine(hosts, host) for host in range(len(world))]
    versions = []
    for host, engine in enumerate(engines):
        engine.recover_store(str(shm_directory / str(host)), "bare", "test")
        (version,) = set(engine.store_versions().values())  # of both tables
        versions.append(version)
    assert max(versions) - min(versions) <= 1
    ahead = engines[versions.index(max(versions))]
    tables = _reference(len(ranks), max(versions))
    keys = [np.array([*table.rows, 10**12]) for table in tables.values()]
    for engine, version in zip(engines, versions, strict=True):
        if version < max(versions):
            engine.roll_forward(ahead.last_updates())
    for engine in engines:
        engine.forget_updates()
        bare_rank.open_tables(engine, TABLES, is_leader=True)
        rows, versions = engine.read(TABLES, keys)
        assert versions == [max(versions)] * 2
        for table, of_table, read in zip(tables.values(), keys, rows, strict=True):
            np.testing.assert_allclose(read, table.lookup(of_table), rtol=2e-5, atol=1e-7)
    for name in TABLES:
        assert len({engine.digest(name) for engine in engines}) == 1
    for engine in engines:
        engine.close_store()


def _carry(
    ranks: list[Connection], leading: list[int], rounds: int | None = None
) -> list[tuple[str, list]]:
    """Carries what ranks send each other, and returns what each says in the end.

    Of the last of so many rounds the first rank alone hears.
    """
    leaders = [ranks[rank] for rank in leading]
    number = 0
    while True:
        said = {leader: leader.recv() for leader in leaders}
        where = said[leaders[0]][0]
        if where != "to leaders":
            said |= {rank: rank.recv() for rank in ranks if rank not in leaders}
        if where == "done":
            return [said[rank] for rank in ranks]
        sent = [said[rank][1] for rank in ranks if rank in said]
        for place, rank in enumerate(rank for rank in ranks if rank in said):
            rank.send(np.concatenate([words[place if len(words) > 1 else 0] for words in sent]))
            if number == rounds:
                return []
        number += 1


def _reference(ranks: int, steps: int) -> dict[str, training.Table]:
    tables = {
        name: training.Table(
            name,
            tfhybrid.TableConfig(dim, initializer=bare_rank.INITIALIZER),
            training.Adagrad(bare_rank.LEARNING_RATE),
        )
        for name, dim in bare_rank.TABLES.items()
    }
    for step in range(steps):
        batches = [bare_rank.batch(step, rank) for rank in range(ranks)]
        samples = [len(keys[0]) for keys, _ in batches]
        for number, table in enumerate(tables.values()):
            of_ranks = [
                training.sum_by_key(keys[number], gradients[number]) for keys, gradients in batches
            ]
            table.update(training.reduce(of_ranks, samples, "frequency"))
    return tables


@pytest.fixture
def engine(shm_directory: Path) -> Iterator[Engine]:
    """Of a job of one rank, with two tables."""
    engine = Engine()
    engine.open_store(str(shm_directory), "job", 0, "rank 0", 7)
    bare_rank.open_tables(engine, TABLES, is_leader=True)
    yield engine
    engine.close_store()


def test_bad_input_is_named_and_changes_nothing(engine: Engine) -> None:
    with pytest.raises(StoreError, match="No table named 'shop'"):
        engine.open_update("bad", {"shop": 3})
    with pytest.raises(ConfigError, match="one table or more"):
        engine.open_update("bad", {})
    with pytest.raises(ConfigError, match=r"exchange is 'leaders'.*Received: 'gossip'"):
        engine.open_update("bad", TABLES, UpdateChoices(exchange="gossip"))
    with pytest.raises(ConfigError, match=r"wire_dtype is 'float32'.*Received: 'int8'"):
        engine.open_update("bad", TABLES, UpdateChoices(wire_dtype="int8"))
    with pytest.raises(ConfigError, match=r"this rank's too.*Received: 2 entries"):
        Engine([0, 1], 2)
    update = engine.open_update("bad", TABLES)
    with pytest.raises(ConfigError, match="other settings"):
        engine.open_update("bad", TABLES, UpdateChoices(reduction="mean"))
    keys, gradients = bare_rank.batch(0, 0)
    with pytest.raises(ConfigError, match=r"Gradients must be \[\(40, 3\), \(40, 16\)\]"):
        update.post(keys, gradients[::-1], [0.1, 0.1], samples=40)
    with pytest.raises(ConfigError, match=r"2 tables. Received: \[0.1\]"):
        update.post(keys, gradients, [0.1], samples=40)
    exchanged = HostExchange(engine, "bad", TABLES, UpdateChoices())
    with pytest.raises(StoreError, match="The leader of a host exchanges"):
        exchanged.merge()
    with pytest.raises(StoreError, match="The leader of a host exchanges"):
        exchanged.commit([0.1, 0.1])
    every_rank = engine.open_update("packed", TABLES, UpdateChoices(exchange="all_ranks"))
    with pytest.raises(StoreError, match="packed, not posted"):
        every_rank.post(keys, gradients, [0.1, 0.1], samples=40)
    with pytest.raises(StoreError, match="A store is open already"):
        engine.open_store("/dev/shm", "other", 0, "rank 0", 7)
    assert engine.read(TABLES, keys)[1] == [0, 0]


def test_nothing_is_committed_before_it_is_staged(shm_directory: Path) -> None:
    engine = Engine([0, 1], 0)
    engine.open_store(str(shm_directory), "job", 0, "rank 0", 7)
    bare_rank.open_tables(engine, TABLES, is_leader=True)
    update = HostExchange(engine, "bad", TABLES, UpdateChoices())
    keys, gradients = bare_rank.batch(0, 0)
    update.post(keys, gradients, [0.1, 0.1], samples=40)
    update.commit([0.1, 0.1])
    with pytest.raises(StoreError, match="An update is staged before it is committed"):
        engine.wait("item")
    engine.close_store()


def test_two_engines_of_a_process_hold_tables_of_one_name(
    engine: Engine, shm_directory: Path
) -> None:
    second = Engine()
    assert second.number > engine.number
    second.open_store(str(shm_directory), "second", 0, "rank 0", 7)
    bare_rank.open_tables(second, TABLES, is_leader=True)
    keys, gradients = bare_rank.batch(0, 0)
    second.open_update("sgd", TABLES).post(keys, gradients, [0.1, 0.1], samples=40)
    second.wait("item")
    assert second.read(TABLES, keys)[1] == [1, 1]
    assert engine.read(TABLES, keys)[1] == [0, 0]
    second.close_store()
    with pytest.raises(StoreError, match="has ended"):
        second.read(TABLES, keys)


def test_a_failure_is_posted_in_place_of_gradients(engine: Engine) -> None:
    item, user = TABLES
    update = engine.open_update("failing", TABLES)
    keys, gradients = bare_rank.batch(0, 0)
    update.post(keys, gradients, [0.1, 0.1], samples=40)
    update.post(keys, gradients, [0.1, 0.1], samples=40, skip=True)
    engine.wait(user)
    before, versions = engine.read(TABLES, keys)
    assert versions == [2, 2]
    update.post(keys, gradients, [0.1, 0.1], samples=0, failure="the disk is gone")
    with pytest.raises(StoreError, match="the disk is gone"):
        engine.wait(item)
    after, versions = engine.read(TABLES, keys)
    assert versions == [2, 2]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


def test_a_version_that_does_not_come_is_waited_for_up_to_the_limit(
    engine: Engine,
) -> None:
    keys, _ = bare_rank.batch(0, 0)
    with pytest.raises(PeerDiedError, match="within 20 ms"):
        engine.read(TABLES, keys, min_versions=[1, 0], timeout_seconds=0.02)


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
