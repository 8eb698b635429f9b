"""The side of `benchmarks.roles.rows` that owns the rows."""

from __future__ import annotations

import argparse
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from tfhybrid.core.allocator import keep_freed_memory
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerKind, PlacementKind
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.initializers import Uniform
from tfhybrid.job.row_service import Leader, RowService
from tfhybrid.rpc.tls import Tls
from tfhybrid.rpc.tokens import new_token

NAME, ROWS, SILENCE = "item", 1_000_000, 60.0
HOSTS = (0, 1)


def opened(directory: Path, host: int, dim: int) -> Engine:
    """Returns the engine of a host; host 0 has all rows."""
    keep_freed_memory()  # as `tfhybrid.init` does
    engine = Engine(HOSTS, host)
    (directory / str(host)).mkdir()
    engine.open_store(str(directory / str(host)), "rows", 0, f"rank {host}", 7)
    placement = (PlacementKind.WHOLE, 0)
    engine.open_table(OpenedTable(NAME, dim, Uniform().native, placement=placement))
    engine.set_optimizer(NAME, kind=OptimizerKind.SGD)
    return engine


def encryption(options: argparse.Namespace) -> Tls | None:
    """Returns what encrypts the connections of this process, if that is wanted."""
    return None if options.files is None else Tls(options.files)


def batches(keys: int, rounds: int) -> list[np.ndarray]:
    """Returns distinct keys, in another order each time."""
    random = np.random.default_rng(3)
    return [random.choice(ROWS, keys, replace=False) for _ in range(rounds)]


def seconds_of(work: Callable[..., object], *arguments: object) -> float:
    """Returns how long a call takes."""
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def own(test: Connection, directory: Path, options: argparse.Namespace) -> None:
    """Owns the rows, serves them, and reads them directly when it is told to."""
    engine = opened(directory, 0, options.dim)
    fill(engine, options.dim)
    listener = socket.create_server(("127.0.0.1", 0))
    token = new_token()
    service = RowService(engine, 0, listener, token, SILENCE, encryption(options))
    service.start([Leader(None, "rank 0"), Leader(None, "rank 1")])
    test.send((listener.getsockname(), token))
    busy = threading.Event()
    threading.Thread(target=spin, args=(busy,), daemon=True).start()
    for keys in batches(options.keys, options.rounds):
        for load in (False, True):
            (busy.set if load else busy.clear)()
            test.send("owner reads")
            test.recv()
            test.send(seconds_of(engine.read, {NAME: options.dim}, [keys]))
            test.recv()  # until the other one has read
    busy.clear()
    service.stop()
    engine.close_store()


def spin(busy: threading.Event) -> None:
    """Keeps an interpreter busy whenever it is told to."""
    while busy.wait():
        sum(range(1000))


def fill(engine: Engine, dim: int) -> None:
    """Makes all rows."""
    writer = TableWriter(engine, NAME, dim, (0, dim), None)
    keys = np.arange(ROWS)
    writer.write_rows(RowBlock(keys, np.ones((ROWS, dim), np.float32), None))
