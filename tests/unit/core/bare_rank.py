"""A rank that trains two tables with ctypes and NumPy alone: no TensorFlow, no Horovod."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np

from tests.support.core.host_exchange import HostExchange
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.update import UpdateChoices
from tfhybrid.initializers import Uniform

TABLES = {"item": 3, "user": 16}
INITIALIZER = Uniform()
LEARNING_RATE = 0.1
EXCHANGES = ("leaders", "owner", "all_ranks")
STEPS_EACH_WAY = 3
_TOKEN = 7
_moved = {"sent_bytes": 0, "received_bytes": 0}  # by this rank


def batch(step: int, rank: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns the keys of each table, some of them twice, and a gradient of each."""
    random = np.random.default_rng([step, rank])
    count = 0 if (step, rank) == (1, 5) else 40
    keys = [random.integers(-50, 50, count) for _ in TABLES]
    for of_table in keys:
        of_table[:3] = np.array([0, -(2**63), 2**63 - 1])[: len(of_table)]
    gradients = [random.normal(size=(count, dim)).astype(np.float32) for dim in TABLES.values()]
    return keys, gradients


def hosts_of(world: Sequence[int]) -> list[int]:
    """Returns the host of each rank, where `world` has the number of ranks of each host."""
    return [host for host, ranks in enumerate(world) for _ in range(ranks)]


def run(test: Connection, directory: str, world: Sequence[int], rank: int) -> None:
    """Trains; what leaders exchange travels through the test. Ends when the test says so."""
    hosts = hosts_of(world)
    host = hosts[rank]
    local_rank = rank - hosts.index(host)
    engine = Engine(hosts, host)
    engine.open_store(directory, "bare", local_rank, f"rank {rank}", _TOKEN)
    test.send("has opened the store")
    test.recv()  # once all have: one that a leader does not find is dead to it
    open_tables(engine, TABLES, is_leader=local_rank == 0)
    step = 0
    for exchange in EXCHANGES:
        update = HostExchange(engine, exchange, TABLES, UpdateChoices(exchange=exchange))
        for _ in range(STEPS_EACH_WAY):
            keys, gradients = batch(step, rank)
            if exchange == "all_ranks":
                message = update.pack(keys, gradients, samples=len(keys[0]))
                messages = _travelled(test, "to all ranks", [message])
                update.apply_gathered(messages, [LEARNING_RATE] * 2)
            else:
                update.post(keys, gradients, [LEARNING_RATE] * 2, samples=len(keys[0]))
                if local_rank == 0 and len(world) > 1:
                    _exchange(test, update, exchange)
            step += 1
    for name in TABLES:
        engine.wait(name)
    test.send(("done", sorted({"tensorflow", "horovod", "keras"} & set(sys.modules))))
    wanted = test.recv()
    rows, versions = engine.read(TABLES, wanted, min_versions=[step] * 2)
    digests = [engine.digest(name) for name in TABLES]
    test.send((rows, versions, digests, native.counters(), dict(_moved)))
    test.recv()
    engine.close_store()


def open_tables(engine: Engine, tables: dict[str, int], *, is_leader: bool) -> None:
    """Opens tables, by name and dim, in the store of an engine."""
    for name, dim in tables.items():
        engine.open_table(OpenedTable(name, dim, INITIALIZER.native))
        if is_leader:
            engine.set_optimizer(
                name,
                kind=native.OptimizerKind.ADAGRAD,
                initial_accumulator_value=0.1,
                epsilon=1e-7,
            )


def _exchange(test: Connection, update: HostExchange, exchange: str) -> None:
    merged = update.merge()
    if exchange == "owner":
        merged = [update.merge_owned(_travelled(test, "to leaders", merged))]
    vote, complaint = update.stage(_travelled(test, "to leaders", merged))
    if vote:  # tables grow: each host must hear whether the others' can
        text = np.frombuffer(complaint.encode(), np.uint8)
        complaint = bytes(_travelled(test, "to leaders", [text])).decode()
    update.commit([LEARNING_RATE] * 2, complaint)


def _travelled(test: Connection, where: str, words: list[np.ndarray]) -> np.ndarray:
    test.send((where, words))
    came = test.recv()
    if came.dtype == np.int64:  # gradients, no complaint
        _moved["sent_bytes"] += sum(each.nbytes for each in words)
        _moved["received_bytes"] += came.nbytes
    return came
