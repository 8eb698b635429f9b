"""Process that is restarted when it ends, and ends with the process that watches it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tfhybrid.cluster import bound_process
from tfhybrid.cluster.placed_processes import PlacedProcess
from tfhybrid.settings import environment_of_child

_log = logging.getLogger("tfhybrid.cluster")

_AGAIN_SECONDS = 0.5


class WatchedProcess:
    """Process that a launcher keeps running. The first `look` starts it.

    One thread must make all calls: the kernel ends the process with the thread that started it.

    Args:
        process: Process to run.
        log: Path of the file to which the output of the process is appended.
        processors: Processors on which the process runs; empty means all.

    Attributes:
        process: Process to run.
        starts: Number of times the process was started.
        done: True once a process with `may_end` has ended with status 0, so it is not restarted.
    """

    def __init__(self, process: PlacedProcess, log: Path, processors: Iterable[int]) -> None:
        self.process = process
        self.starts = 0
        self.done = False
        self._log = log
        self._processors = ",".join(map(str, sorted(processors)))
        self._running: subprocess.Popen[bytes] | None = None
        self._died_at = 0.0

    @property
    def pid(self) -> int | None:
        """Number of the operating system's process, or `None` while it does not run."""
        return None if self._running is None else self._running.pid

    def look(self) -> bool:
        """Starts the process if it does not run, 0.5 s after its last end; never waits.

        If it cannot be started, for example without file descriptors, the error is logged, and the
        start is tried again 0.5 s later.

        Returns:
            True if the process was started, or was seen to have ended.
        """
        if self.done:
            return False
        if self._running is not None:
            status = self._running.poll()
            if status is None:
                return False
            self.done = self.process.may_end and status == 0
            level = logging.INFO if self.done else logging.WARNING
            _log.log(level, "%s has ended with status %d", self.process.name, status)
            self._running, self._died_at = None, time.monotonic()
            return True
        if self._died_at and time.monotonic() < self._died_at + _AGAIN_SECONDS:
            return False
        try:
            self._running = self._started()
        except OSError as error:
            _log.error("%s cannot be started, trying again: %s", self.process.name, error)
            self._died_at = time.monotonic()
            return False
        self.starts += 1
        return True

    def end(self) -> None:
        """Sends SIGTERM to the process, if it runs. Does not wait."""
        if self._running is not None:
            self._running.terminate()

    def wait(self, seconds: float) -> None:
        """Waits until the process has ended. Kills the process if it does not end in time.

        Args:
            seconds: Time to wait before the process is killed, in seconds; 0.1 if less.
        """
        if self._running is None:
            return
        try:
            self._running.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        bound = (sys.executable, "-I", bound_process.__file__, str(os.getpid()), self._processors)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                (*bound, *self.process.command),
                env=environment_of_child(self.process.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
