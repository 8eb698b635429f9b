"""A rank of a host with a store, a watch and no Horovod."""

from __future__ import annotations

import logging
import os
import signal
import socket
from multiprocessing.connection import Connection
from pathlib import Path

from tfhybrid.core.engine import Engine
from tfhybrid.core.meetings import Meeting
from tfhybrid.job import watch
from tfhybrid.job.lifelines import Lifelines
from tfhybrid.job.rank_identity import RankIdentity
from tfhybrid.job.waits import Board
from tfhybrid.job.watch import Watch

FAR = "rank 9 (pid 9 on there)"
FAIL = "fail"


def name_of(rank: int, pid: int) -> str:
    """Returns what the rank calls itself."""
    return f"rank {rank} (pid {pid} on here)"


def run(
    test: Connection, directory: str, rank: int, ranks: int, link: socket.socket, fork: bool
) -> None:
    """Tells the test what it has done, and goes on when the test says so: to a meeting, or the end.

    It may be told to `FAIL`: to end as by an exception, with patience for the news.

    Logs into `DIRECTORY/RANK.log`. With `fork` it has a child that outlives it, and keeps open what
    was open.
    """
    os.setsid()
    logging.basicConfig(format="%(message)s", filename=Path(directory, f"{rank}.log"))
    name = name_of(rank, os.getpid())
    engine = Engine([0] * ranks, 0)
    engine.open_store(directory, "watched", rank, name, 7)
    test.send("has opened the store")
    test.recv()
    if fork and os.fork() == 0:
        while True:
            signal.pause()
    neighbours = [other for other in range(ranks) if other != rank]
    board = Board([name, FAR]) if rank == 0 else None
    watching = Watch(
        RankIdentity(rank, os.getpid(), "here", (0, ranks - 1), ""), Lifelines({link: FAR}, 60)
    )
    watching.attach(engine, neighbours, board)
    test.send("is watching")
    while isinstance(order := test.recv(), Meeting):
        with engine.meeting(order):
            test.recv()
    if order == FAIL:
        watch.LINGER_SECONDS = 60
    watching.leave(failed=order == FAIL)
    engine.close_store()
