"""Trainer of its own process, the second of two, whose tables lie on an embedding node."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection

from tests.support.core.sharded_tables import ADAGRAD, INITIALIZER, RATE, TABLES, batch
from tests.support.roles.owner_engines import BY_KEY
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose
from tfhybrid.core.opened_table import OpenedTable

HOSTS, HOST, NODE = [0, 1], 1, 2


def open_tables(engine: Engine) -> None:
    for name, dim in TABLES.items():
        engine.open_table(OpenedTable(name, dim, INITIALIZER.native, placement=BY_KEY))
        engine.set_optimizer(name, **ADAGRAD)


def post(engine: Engine, rank: int) -> None:
    keys, gradients = batch(0, rank)
    engine.open_update("sgd", TABLES).post(keys, gradients, [RATE] * 2, samples=len(keys[0]))


def run(
    test: Connection,
    directory: str,
    first: socket.socket,
    of_first: socket.socket,
    node: socket.socket,
) -> None:
    """Opens its store; makes one update when the test says so, and ends when it says so again."""
    engine = Engine(HOSTS, HOST, 1)
    engine.open_store(directory, "job", 0, "trainer 1", 7)
    engine.connect_owner(0, LinkPurpose.UPDATES, first, "trainer 0")
    engine.serve_owner(0, LinkPurpose.UPDATES, of_first, "trainer 0")
    engine.connect_owner(NODE, LinkPurpose.UPDATES, node, "node")
    open_tables(engine)
    test.send("is open")
    test.recv()
    post(engine, 1)
    test.recv()
    engine.close_store()
