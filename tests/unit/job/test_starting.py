"""Ranks that watch each other before Horovod starts, by a real server of horovodrun."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from horovod.runner.http.http_server import RendezvousServer

from tests.unit.conftest import Start
from tests.unit.job import starting_rank
from tfhybrid.distributed import Server
from tfhybrid.errors import StoreError
from tfhybrid.job import watch
from tfhybrid.job.connecting import Gathering
from tfhybrid.job.lifelines import Lifelines
from tfhybrid.job.rank_identity import RankIdentity
from tfhybrid.job.watch import Watch
from tfhybrid.rpc.listener import listen

SECONDS = 120  # the first process of a worker imports TensorFlow
HOST = socket.gethostname()


class Rank:
    """A process that has its lifeline, and waits for others."""

    def __init__(self, number: int, process: BaseProcess, orders: Connection, log: Path) -> None:
        self.process = process
        self._orders = orders
        self._log = log
        self.name = f"rank {number} (pid {process.pid} on {HOST})"

    def has_come(self) -> None:
        assert self._orders.poll(SECONDS)
        self._orders.recv()

    def send(self, signal_: signal.Signals) -> None:
        os.kill(self.process.pid, signal_)

    def leave(self) -> None:
        self._orders.send("leave")

    def end(self) -> tuple[int | None, str]:
        """Waits for its end; returns its exit status and what it logged."""
        self.process.join(SECONDS)
        return self.process.exitcode, self._log.read_text()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self._orders.close()


@pytest.fixture
def port() -> Iterator[int]:
    server = RendezvousServer()
    yield server.start()
    server.stop()


@pytest.fixture
def start(start_forked: Start, tmp_path: Path, port: int) -> Iterator:
    """Starts ranks of a job of so many, one host; returns those that have come."""
    ranks: list[Rank] = []

    def start(*numbers: int, of: int) -> list[Rank]:
        new = []
        for number in numbers:
            log = tmp_path / f"{number}.log"
            made = start_forked(starting_rank.run, port, number, of, str(log))
            new.append(Rank(number, *made, log))
        ranks.extend(new)
        for rank in new:
            rank.has_come()
        return new

    yield start
    for rank in ranks:
        rank.stop()


def news(what: str, rank: Rank) -> str:
    return f"While the job started: {what}. So {rank.name} ends too.\n"


def test_a_rank_that_dies_while_others_wait_is_named(start):
    first, second, third = start(0, 1, 2, of=4)
    third.send(signal.SIGKILL)
    told = f"{third.name} has died. Not there yet: rank 3 on {HOST}"
    assert first.end() == (1, news(told, first))
    assert second.end() == (1, news(told, second))


def test_rank_0_is_named_to_all(start):
    first, second, third = start(0, 1, 2, of=4)
    first.send(signal.SIGKILL)
    assert second.end() == (1, news(f"{first.name} has died", second))
    assert third.end() == (1, news(f"{first.name} has died", third))


def test_a_rank_that_leaves_before_all_have_come_is_news(start):
    first, second = start(0, 1, of=3)
    second.leave()
    told = f"{second.name} has left. Not there yet: rank 2 on {HOST}"
    assert first.end() == (1, news(told, first))
    assert second.end() == (0, "")


def test_ranks_that_are_terminated_name_who_has_not_come(start):
    """`horovodrun` ends the others when a rank dies that has not come yet."""
    first, second = start(0, 1, of=3)
    first.send(signal.SIGTERM)
    told = f"{first.name} was told to end (SIGTERM). Not there yet: rank 2 on {HOST}"
    assert first.end() == (-signal.SIGTERM, news(told, first))
    assert second.end() == (1, news(told, second))


def test_a_rank_that_comes_late_hears_why_the_job_ends(start):
    first, second = start(0, 1, of=3)
    first.send(signal.SIGSTOP)
    second.send(signal.SIGKILL)
    second.process.join()
    (third,) = start(2, of=3)
    first.send(signal.SIGCONT)  # the news is there before the third rank has been let in
    assert first.end() == (
        1,
        news(f"{second.name} has died. Not there yet: rank 2 on {HOST}", first),
    )
    assert f"{second.name} has died" in third.end()[1]


def test_the_invitation_is_taken_back_once_all_are_there(start, port):
    first, second = start(0, 1, of=2)
    server = Server(("127.0.0.1", port))
    while server.get("rank-0") is not None:
        assert first.process.is_alive()
    for rank in (first, second):
        rank.leave()


def test_ranks_that_do_not_connect_although_horovod_runs_are_named(monkeypatch):
    monkeypatch.setattr(watch, "CONNECT_SECONDS", 0.1)
    own = RankIdentity(0, os.getpid(), HOST, (0, 1), "secret")
    watching = Watch(own, Lifelines({}, 60), Gathering(listen("127.0.0.1"), own, 3, 60))
    watching.horovod_has_started()
    with pytest.raises(StoreError, match=rf"No connection with rank 1 on {HOST}, rank 2 within"):
        watching.meet()
    watching.leave()
