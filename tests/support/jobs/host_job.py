"""A training on several hosts, under horovodrun, that tests disturb."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing import connection

from tests.support.hosts import Hosts

TRAINING = "tests/integration/jobs/training.py"
ENDLESS = 10**9
_PATIENCE_SECONDS = 240


@dataclasses.dataclass(frozen=True)
class Rank:
    """A process of the job, as messages name it."""

    number: int
    pid: int
    host: str
    child: int  # a process that it has forked, or 0

    def __str__(self) -> str:
        return f"rank {self.number} (pid {self.pid} on {self.host})"


class HostJob:
    """A job, once all its ranks have said that they run. A context that ends whatever still runs.

    Args:
        hosts: Where it runs.
        slots: The number of ranks on each host.
        *arguments: Of the script.
        script: What runs.

    Attributes:
        output: What the job has written so far.
        ranks: Its processes.
    """

    def __init__(
        self, hosts: Hosts, slots: dict[str, int], *arguments: object, script: str = TRAINING
    ) -> None:
        self.output = ""
        self.ranks: list[Rank] = []
        self._pidfds: list[int] = []
        self._changed = threading.Condition()
        self._process = hosts.start(slots, script, *map(str, arguments))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._wait_until_running(sum(slots.values()))
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> HostJob:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def send(self, rank: int, signal_: signal.Signals) -> None:
        """Sends a signal to a rank."""
        signal.pidfd_send_signal(self._pidfds[rank], signal_)

    def kill_at_once(self, ranks: Sequence[int], watcher: int) -> None:
        """Kills ranks; a watching rank stands still until all are dead, however long that takes."""
        self.send(watcher, signal.SIGSTOP)
        for rank in ranks:
            self.send(rank, signal.SIGKILL)
        for rank in ranks:
            assert connection.wait([self._pidfds[rank]], _PATIENCE_SECONDS), f"{rank} is alive"
        self.send(watcher, signal.SIGCONT)

    def find(self, pattern: str, count: int = 1, seconds: float = _PATIENCE_SECONDS) -> list:
        """Waits until the job has written so many matches; returns those that are there."""

        def found() -> list:
            return re.findall(pattern, self.output)

        with self._changed:
            self._changed.wait_for(
                lambda: len(found()) >= count or not self._reader.is_alive(), seconds
            )
            return found()

    def wait_for_ends(self, seconds: float) -> int:
        """Returns the exit status of horovodrun; fails the test if a process runs on."""
        deadline = time.monotonic() + seconds
        for pidfd in self._pidfds[: len(self.ranks)]:
            left = max(0.0, deadline - time.monotonic())
            assert connection.wait([pidfd], left), f"a rank runs on:\n{self.output}"
        status = self._process.wait(max(0.1, deadline - time.monotonic()))
        self._reader.join(seconds)
        return status

    def stop(self) -> None:
        """Ends whatever still runs."""
        self._process.kill()
        self._process.wait()
        for pidfd in self._pidfds:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        self._reader.join()

    def _wait_until_running(self, ranks: int) -> None:
        said = self.find(r"running rank=(\d+) pid=(\d+) host=(\S+) child=(\d+)", ranks)
        self.ranks = sorted(
            (Rank(int(rank), int(pid), host, int(child)) for rank, pid, host, child in said),
            key=lambda rank: rank.number,
        )
        assert len(self.ranks) == ranks, f"the job ended before all ranks ran:\n{self.output}"
        # They name no other process once theirs is gone, and can be read from then.
        pids = [rank.pid for rank in self.ranks] + [rank.child for rank in self.ranks]
        self._pidfds = [os.pidfd_open(pid) for pid in pids if pid]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.output += line
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()
