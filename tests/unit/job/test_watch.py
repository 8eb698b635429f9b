"""Real processes with a store and a watch each, without Horovod: watched_rank.py."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.support.halting import halt
from tests.support.roles.clusters import until
from tests.unit.conftest import Start
from tests.unit.job import watched_rank
from tfhybrid.core.meetings import Meeting
from tfhybrid.job.lifelines import LEFT
from tfhybrid.job.waits import HEARD

SECONDS = 120  # the first process of a worker imports TensorFlow


class Ranks:
    """Two ranks of this host; the test is at the other end of their lifelines, as rank 9."""

    def __init__(self, start: Start, directory: Path, fork: bool) -> None:
        self._directory = directory
        self.lines: list[socket.socket] = []
        self._orders: list[Connection] = []
        self.processes: list[BaseProcess] = []
        self.names: list[str] = []
        for rank in range(2):
            mine, its = socket.socketpair()
            mine.settimeout(SECONDS)
            process, orders = start(watched_rank.run, str(directory), rank, 2, its, fork)
            its.close()
            self.processes.append(process)
            self.lines.append(mine)
            self._orders.append(orders)
            self.names.append(watched_rank.name_of(rank, process.pid))
            self.hear(rank)  # the leader's store is there before others
        for rank in range(2):
            self.go_on(rank)
        for rank in range(2):
            self.hear(rank)

    def hear(self, rank: int) -> None:
        assert self._orders[rank].poll(SECONDS)
        self._orders[rank].recv()

    def go_on(self, rank: int, order: Meeting | str | None = None) -> None:
        self._orders[rank].send(order)

    def send(self, rank: int, signal_: signal.Signals) -> None:
        os.kill(self.processes[rank].pid, signal_)

    def halt(self, rank: int) -> None:
        halt(self.processes[rank].pid)

    def kill(self, rank: int) -> None:
        self.send(rank, signal.SIGKILL)
        self.processes[rank].join()

    def told(self, rank: int) -> str:
        """What the rank told rank 9."""
        return self.lines[rank].recv(4096).decode()

    def await_log(self, rank: int, text: str) -> None:
        """Waits until a rank has logged a text."""
        until(lambda: text in (self._directory / f"{rank}.log").read_text())

    def end(self, rank: int) -> tuple[int | None, str]:
        """Waits for a rank's end; returns its exit status and what it logged."""
        self.processes[rank].join(SECONDS)
        return self.processes[rank].exitcode, (self._directory / f"{rank}.log").read_text()

    def stop(self) -> None:
        for process, orders, line in zip(self.processes, self._orders, self.lines, strict=True):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a forked child too
            process.join()
            orders.close()
            line.close()


@pytest.fixture
def start(start_forked, shm_directory: Path) -> Iterator:
    started = []

    def start(*, fork: bool = False) -> Ranks:
        started.append(Ranks(start_forked, shm_directory, fork))
        return started[-1]

    yield start
    for ranks in started:
        ranks.stop()


@pytest.mark.parametrize("fork", [False, True], ids=["alone", "with-a-child-that-lives-on"])
def test_a_killed_neighbour_is_named_and_told_and_ends_this_process(start, fork):
    ranks = start(fork=fork)
    ranks.kill(1)
    died = f"{ranks.names[1]} has died"
    assert ranks.told(0) == f"{died}\n"
    assert ranks.end(0) == (1, f"{died}. So {ranks.names[0]} ends too.\n")


def test_a_neighbour_that_leaves_is_no_death(start):
    ranks = start()
    ranks.go_on(1)
    assert ranks.end(1) == (0, "")
    assert ranks.told(1) == f"{LEFT}\n"
    assert ranks.told(0) == f"{LEFT}\n"
    ranks.go_on(0)
    assert ranks.end(0) == (0, "")


def test_news_from_afar_end_this_process(start):
    ranks = start()
    died = "rank 7 (pid 17 on there) has died"
    ranks.lines[0].sendall(f"{died}\n".encode())
    assert ranks.end(0) == (1, f"{died}. So {ranks.names[0]} ends too.\n")


def test_a_lifeline_that_ends_is_a_death(start):
    ranks = start()
    ranks.lines[1].close()
    died = "rank 9 (pid 9 on there) has died"
    assert ranks.end(1) == (1, f"{died}. So {ranks.names[1]} ends too.\n")


def test_once_a_rank_has_left_those_that_are_killed_are_no_news(start):
    ranks = start()
    ranks.lines[0].sendall(f"{LEFT}\n".encode())
    assert ranks.told(0) == f"{LEFT}\n"
    ranks.kill(1)
    ranks.go_on(0)
    assert ranks.end(0) == (0, "")


def test_who_leaves_looks_around_once_more(start):
    """As a rank does whose collective fails before its watch has seen who died."""
    ranks = start()
    ranks.halt(0)
    ranks.kill(1)
    ranks.go_on(0)
    ranks.send(0, signal.SIGCONT)
    assert ranks.told(0) == f"{ranks.names[1]} has died\n"
    assert f"{ranks.names[1]} has died" in ranks.end(0)[1]


def test_who_fails_waits_for_the_news_that_explain_it(start):
    """Its collective fails when the connections of Gloo break, before those of the watch do."""
    ranks = start()
    ranks.go_on(0, watched_rank.FAIL)
    ranks.kill(1)
    assert ranks.told(0) == f"{ranks.names[1]} has died\n"
    assert f"{ranks.names[1]} has died" in ranks.end(0)[1]


def test_ranks_that_die_together_are_all_named(start):
    """Of this host and of another one."""
    ranks = start()
    ranks.halt(0)
    ranks.kill(1)
    ranks.lines[0].close()
    ranks.send(0, signal.SIGCONT)
    status, logged = ranks.end(0)
    assert status == 1
    died = sorted(logged.removesuffix(f". So {ranks.names[0]} ends too.\n").split(". "))
    assert died == [f"{ranks.names[1]} has died", "rank 9 (pid 9 on there) has died"]


def test_a_death_that_is_both_seen_and_told_is_named_once(start):
    ranks = start()
    ranks.halt(0)
    ranks.kill(1)
    died = f"{ranks.names[1]} has died. rank 7 (pid 17 on there) has died"
    ranks.lines[0].sendall(f"{died}\n".encode())
    ranks.send(0, signal.SIGCONT)
    assert ranks.end(0) == (1, f"{died}. So {ranks.names[0]} ends too.\n")


def test_of_what_comes_together_a_death_is_the_news(start):
    """A rank whose collective fails because another one died leaves."""
    ranks = start()
    ranks.halt(0)
    ranks.lines[0].sendall(f"{LEFT}\n".encode())
    ranks.kill(1)
    ranks.send(0, signal.SIGCONT)
    assert ranks.told(0) == f"{ranks.names[1]} has died\n"


def test_a_rank_that_is_terminated_looks_around_once_more(start):
    """As `horovodrun` does with all that are left, before their watches have seen who died."""
    ranks = start()
    ranks.halt(0)
    ranks.kill(1)
    ranks.send(0, signal.SIGTERM)
    ranks.send(0, signal.SIGCONT)
    died = f"{ranks.names[1]} has died. So {ranks.names[0]} ends too.\n"
    assert ranks.end(0) == (-signal.SIGTERM, died)


def test_a_rank_that_is_terminated_alone_is_named_by_the_others(start):
    ranks = start()
    ranks.send(1, signal.SIGTERM)
    assert ranks.end(1) == (-signal.SIGTERM, "")
    assert ranks.told(0) == f"{ranks.names[1]} has died\n"


def test_a_rank_that_waits_tells_rank_0_and_ranks_that_differ_end(start):
    ranks = start()
    ranks.go_on(1, Meeting("step", "update_0", ("user",)))
    note = ranks.told(1)  # what rank 1 tells is what rank 9 would
    assert '"number": 1' in note
    ranks.go_on(0, Meeting("step", "update_0", ("item",)))
    ranks.lines[0].sendall(note.encode())
    told = ranks.told(0)
    assert f"{ranks.names[0]} in step 1 of optimizer update_0 (tables 'item')" in told
    assert f"{watched_rank.FAR} in step 1 of optimizer update_0 (tables 'user')" in told
    assert ranks.end(0) == (1, f"{told.strip()}. So {ranks.names[0]} ends too.\n")


def test_ranks_that_wait_in_the_same_meeting_go_on(start):
    ranks = start()
    meeting = Meeting("step", "update_0", ("user",))
    ranks.go_on(1, meeting)
    ranks.go_on(0, meeting)
    ranks.lines[0].sendall(ranks.told(1).encode())
    ranks.go_on(1)
    assert ranks.told(1) == '{"wait": null}\n'
    ranks.go_on(1)
    assert ranks.end(1) == (0, "")
    assert ranks.told(0) == f"{LEFT}\n"
    ranks.go_on(0)
    ranks.go_on(0)
    assert ranks.end(0) == (0, "")


def test_a_rank_that_waits_names_rank_0_if_that_is_stopped(start):
    ranks = start()
    ranks.halt(0)
    ranks.go_on(1, Meeting("step", "update_0", ("user",)))
    notes = [ranks.told(1) for _ in range(2)]  # after 1 and 10 s
    ranks.lines[0].sendall("".join(notes).encode())
    ranks.await_log(1, "rank 0 has not answered for 5 s: it is stopped or very busy\n")
    ranks.send(0, signal.SIGCONT)
    assert ranks.told(0) == f"{HEARD}\n"
