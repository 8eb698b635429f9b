"""A rank whose leader is stopped, and what it waits for."""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from tests.support.core.pass_trainers import ADAGRAD
from tests.support.halting import halt
from tests.support.roles.clusters import until
from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import PlacementKind
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.initializers import Uniform

HOSTS = [0, 0, 1]


def opened(directory: str, local_rank: int) -> Engine:
    engine = Engine(HOSTS, 0)
    engine.open_store(directory, "job", local_rank, f"rank {local_rank}", 7)
    placement = (PlacementKind.BY_KEY, 0)
    engine.open_table(OpenedTable("item", 4, Uniform().native, placement=placement))
    return engine


def lead(test: Connection, directory: str) -> None:
    engine = opened(directory, 0)
    engine.set_optimizer("item", **ADAGRAD)
    test.send("is open")
    test.recv()
    engine.close_store()


def test_who_waits_for_the_end_of_a_pass_says_so(shm_directory: Path) -> None:
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    leader = context.Process(target=lead, args=(other, str(shm_directory)))
    leader.start()
    mine.recv()
    engine = opened(str(shm_directory), 1)
    assert leader.pid is not None
    halt(leader.pid)
    with ThreadPoolExecutor() as threads:
        try:
            announced = passes.announce(engine, [{"item": np.arange(9)}])
            ending = threads.submit(announced.end)
            until(lambda: engine.awaited() == "the leader of its host to let go of passes")
            now = engine.standing()
            assert now.waits_begun == now.waits_ended + 1
        finally:
            os.kill(leader.pid, signal.SIGCONT)
        ending.result()
        assert engine.awaited() == ""
    engine.close_store()
    mine.send("end")
    leader.join()
