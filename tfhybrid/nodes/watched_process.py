"""A process that is started again when it ends, and dies with whoever watches it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tfhybrid.nodes import bound_process
from tfhybrid.nodes.placed_processes import PlacedProcess

_log = logging.getLogger("tfhybrid.nodes")

_AGAIN_SECONDS = 0.5


class WatchedProcess:
    """A process that an engine keeps running. One thread alone uses it.

    Args:
        process: What to run.
        log: The file to which it writes.
        processors: On which it runs; none for all.

    Attributes:
        process: What to run.
        starts: How often it was started.
        done: Whether it has ended as it may; it is not started again then.
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
        """Its number; `None` while it does not run."""
        return None if self._running is None else self._running.pid

    def look(self) -> bool:
        """Starts it, or again once it has died; returns whether anything changed."""
        if self.done:
            return False
        if self._running is not None:
            status = self._running.poll()
            if status is None:
                return False
            self.done = self.process.may_end and status == 0
            level = logging.INFO if self.done else logging.WARNING
            _log.log(level, "%s has ended with %d", self.process.name, status)
            self._running, self._died_at = None, time.monotonic()
            return True
        if self._died_at and time.monotonic() < self._died_at + _AGAIN_SECONDS:
            return False
        bound = (sys.executable, "-I", bound_process.__file__, str(os.getpid()), self._processors)
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                (*bound, *self.process.command),
                env={**os.environ, **self.process.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1
        return True

    def end(self) -> None:
        """Asks it to end."""
        if self._running is not None:
            self._running.terminate()

    def wait(self, seconds: float) -> None:
        """Waits until it has ended; kills it if that takes longer."""
        if self._running is None:
            return
        try:
            self._running.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
