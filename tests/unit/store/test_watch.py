"""Real processes with a store and a watch each, without Horovod: watched_rank.py."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfhybrid.store.lifelines import LEFT

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 30


class Ranks:
    """Two ranks of this host; the test is at the other end of their lifelines, as rank 9."""

    def __init__(self, directory: str, *options: str) -> None:
        self.lines: list[socket.socket] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.names: list[str] = []
        for rank in range(2):
            mine, its = socket.socketpair()
            mine.settimeout(SECONDS)
            script = Path(__file__).with_name("watched_rank.py")
            process = subprocess.Popen(
                [sys.executable, script, directory, str(rank), "2", str(its.fileno()), *options],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
            its.close()
            self.processes.append(process)
            self.lines.append(mine)
            pid = process.stdout.readline().strip()  # the leader's store is there before others
            self.names.append(f"rank {rank} (pid {pid} on here)")
        for rank in range(2):
            self.go_on(rank)
        for process in self.processes:
            assert process.stdout.readline() == "watching\n"

    def go_on(self, rank: int) -> None:
        self.processes[rank].stdin.write("\n")
        self.processes[rank].stdin.flush()

    def kill(self, rank: int) -> None:
        self.processes[rank].kill()
        self.processes[rank].wait()

    def told(self, rank: int) -> str:
        """What the rank told rank 9."""
        return self.lines[rank].recv(4096).decode()

    def end(self, rank: int) -> tuple[int, str]:
        """Waits for a rank's end; returns its exit status and what it logged."""
        logged = self.processes[rank].stderr.read()
        return self.processes[rank].wait(SECONDS), logged

    def stop(self) -> None:
        for process, line in zip(self.processes, self.lines, strict=True):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a forked child too
            process.communicate()
            line.close()


@pytest.fixture
def start(shm_directory: Path) -> Iterator:
    started = []

    def start(*options: str) -> Ranks:
        started.append(Ranks(str(shm_directory), *options))
        return started[-1]

    yield start
    for ranks in started:
        ranks.stop()


@pytest.mark.parametrize("options", [[], ["fork"]], ids=["alone", "with-a-child-that-lives-on"])
def test_a_killed_neighbour_is_named_and_told_and_ends_this_process(start, options):
    ranks = start(*options)
    ranks.kill(1)
    died = f"{ranks.names[1]} has died"
    assert ranks.told(0) == f"{died}\n"
    assert ranks.processes[0].stderr.readline() == f"{died}. So {ranks.names[0]} ends too.\n"
    assert ranks.processes[0].wait(SECONDS) == 1


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
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.kill(1)
    ranks.go_on(0)
    ranks.processes[0].send_signal(signal.SIGCONT)
    assert ranks.told(0) == f"{ranks.names[1]} has died\n"
    assert f"{ranks.names[1]} has died" in ranks.end(0)[1]


def test_of_what_comes_together_a_death_is_the_news(start):
    """A rank whose collective fails because another one died leaves."""
    ranks = start()
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.lines[0].sendall(f"{LEFT}\n".encode())
    ranks.kill(1)
    ranks.processes[0].send_signal(signal.SIGCONT)
    assert ranks.told(0) == f"{ranks.names[1]} has died\n"


def test_a_rank_that_is_terminated_looks_around_once_more(start):
    """As `horovodrun` does with all that are left, before their watches have seen who died."""
    ranks = start()
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.kill(1)
    ranks.processes[0].send_signal(signal.SIGTERM)
    ranks.processes[0].send_signal(signal.SIGCONT)
    died = f"{ranks.names[1]} has died. So {ranks.names[0]} ends too.\n"
    assert ranks.end(0) == (-signal.SIGTERM, died)


def test_a_rank_that_is_terminated_alone_is_named_by_the_others(start):
    ranks = start()
    ranks.processes[1].terminate()
    assert ranks.end(1) == (-signal.SIGTERM, "")
    assert ranks.told(0) == f"{ranks.names[1]} has died\n"
