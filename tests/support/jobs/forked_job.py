"""Jobs as horovodrun starts them, of ranks that start at once: see tests/support/forked."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer

from tests.support.forked.python import ForkedPython
from tests.support.hosts import Hosts


class ForkedJob:
    """A job that runs; its ranks write into one file each."""

    def __init__(
        self, ranks: list[tuple[ForkedPython, int, Path]], rendezvous: RendezvousServer
    ) -> None:
        self._ranks = ranks
        self._rendezvous = rendezvous

    @property
    def output(self) -> str:
        """What the ranks have written so far, one rank after the other."""
        return "\n".join(path.read_text() for _, _, path in self._ranks if path.exists())

    def wait_for(self, pattern: str, count: int = 1, seconds: float = 240) -> None:
        """Returns when the pattern was written so many times; fails if it will not be."""
        deadline = time.monotonic() + seconds
        while len(re.findall(pattern, self.output)) < count:
            assert time.monotonic() < deadline, f"no {pattern!r}:\n{self.output}"
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9 of all ranks at once, and waits until they are gone."""
        for _, pid, _ in self._ranks:
            os.kill(pid, signal.SIGKILL)
        self.wait()

    def kill_one(self, rank: int) -> list[int]:
        """kill -9 of one rank; the others end by themselves. Returns the exit status of each."""
        _, pid, _ = self._ranks[rank]
        os.kill(pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> list[int]:
        """Returns the exit status of each rank."""
        statuses = [python.wait(pid) for python, pid, _ in self._ranks]
        self._rendezvous.stop()
        return statuses

    def succeed(self) -> str:
        """Waits for the end, and returns the output of a job that has not failed."""
        statuses = self.wait()
        assert statuses == [0] * len(statuses), self.output
        return self.output


class ForkedJobs:
    """Starts jobs.

    Args:
        folder: Where ranks write.
        hosts: The hosts to run them on; without any, this machine.
    """

    def __init__(self, folder: Path, hosts: Hosts | None = None) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        names = ["localhost"] if hosts is None else hosts.names
        self._pythons = {
            name: ForkedPython(() if hosts is None else hosts.enter(name)) for name in names
        }
        self._address = "127.0.0.1" if hosts is None else hosts.gateway
        self._interface = "lo" if hosts is None else "eth0"

    def start(
        self, slots: dict[str, int], *argv: str, env: dict[str, str] | None = None
    ) -> ForkedJob:
        """Starts so many ranks of a script on each host."""
        plan = get_host_assignments(
            parse_hosts(",".join(f"{name}:{ranks}" for name, ranks in slots.items())),
            sum(slots.values()),
        )
        rendezvous = RendezvousServer()
        port = rendezvous.start()
        rendezvous.init(plan)
        common = create_run_env_vars(self._address, [self._interface], port)
        folder = self._folder / f"job{next(self._numbers)}"
        folder.mkdir()
        ranks = []
        for slot in plan:
            variables = {**common, **create_slot_env_vars(slot), **(env or {})}
            output = folder / f"rank{slot.rank}"
            python = self._pythons[slot.hostname]
            environment = {name: str(value) for name, value in variables.items()}
            ranks.append((python, python.start(argv, output, output, env=environment), output))
        return ForkedJob(ranks, rendezvous)

    def stop(self) -> None:
        """Ends whatever still runs."""
        for python in self._pythons.values():
            python.stop()


@contextlib.contextmanager
def forked_jobs(folder: Path, hosts: Hosts | None = None) -> Iterator[ForkedJobs]:
    """Yields what starts jobs, and ends them when the block ends."""
    jobs = ForkedJobs(folder, hosts)
    try:
        yield jobs
    finally:
        jobs.stop()
