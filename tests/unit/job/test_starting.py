"""Ranks that find each other before Horovod starts, by a real server of horovodrun."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from horovod.runner.http.http_server import RendezvousServer

from tests.unit.conftest import Start
from tests.unit.job import starting_rank

SECONDS = 30


@pytest.fixture
def start(start_forked: Start, tmp_path: Path) -> Iterator:
    """Starts so many ranks; each says that it waits, and then does until it is told to go on."""
    server = RendezvousServer()
    port = server.start()
    ranks = []

    def start(*numbers: int, size: int) -> list[tuple[object, Connection, Path]]:
        for rank in numbers:
            log = tmp_path / f"{rank}.log"
            ranks.append((*start_forked(starting_rank.run, port, rank, size, str(log)), log))
        return ranks

    yield start
    for process, connection, _ in ranks:
        process.kill()
        process.join()
        connection.close()
    server.stop()


def test_a_rank_that_dies_while_others_wait_for_it_is_named(start) -> None:
    ranks = start(0, 1, 2, size=4)  # the fourth does not come
    for _, connection, _ in ranks:
        assert connection.poll(SECONDS)
        connection.recv()
    os.kill(ranks[2][0].pid, signal.SIGKILL)
    for number, (process, _, log) in enumerate(ranks[:2]):
        process.join(SECONDS)
        assert process.exitcode == 1
        told = f"While the job started, rank 2 has died. So rank {number} (pid {process.pid} on "
        assert told in log.read_text()


def test_rank_0_is_named_to_all(start) -> None:
    ranks = start(0, 1, size=3)
    for _, connection, _ in ranks:
        assert connection.poll(SECONDS)
        connection.recv()
    os.kill(ranks[0][0].pid, signal.SIGKILL)
    ranks[1][0].join(SECONDS)
    assert "While the job started, rank 0 has died." in ranks[1][2].read_text()


def test_a_start_that_fails_closes_what_it_has_opened(start) -> None:
    """A rank whose init raises leaves, which the others see; here there are none."""
    ((process, connection, log),) = start(0, size=2)
    assert connection.poll(SECONDS)
    connection.recv()
    connection.send("end")
    process.join(SECONDS)
    assert process.exitcode == 0
    assert log.read_text() == ""
