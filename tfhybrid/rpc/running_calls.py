"""Calls of other processes that this process is answering: it says which of them take long."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Iterator

from tfhybrid.rpc import messages

_log = logging.getLogger("tfhybrid.rpc")

# A stopped process does not work, so a longer gap between two looks counts as this much.
_LONGEST_GAP_SECONDS = 1.0


@dataclasses.dataclass(eq=False)
class _RunningCall:
    name: str
    caller: str
    begun: float
    logged_at: float  # number of seconds after which it is logged next


class RunningCalls:
    """Calls that a process is answering. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[_RunningCall] = set()
        self._looked = time.monotonic()
        self._clock = 0.0  # seconds that this process has not been stopped

    @contextlib.contextmanager
    def running(self, name: str, caller: str) -> Iterator[None]:
        """Counts a call during the block.

        Args:
            name: Name of the call.
            caller: Name of the process that made the call.
        """
        call = _RunningCall(name, caller, self._clock, messages.WAIT_SECONDS)
        with self._lock:
            self._calls.add(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.discard(call)

    def look(self) -> None:
        """Logs the calls that have taken 10, 20, 40 and so on seconds. Call it every second."""
        with self._lock:
            now = time.monotonic()
            self._clock += min(now - self._looked, _LONGEST_GAP_SECONDS)
            self._looked = now
            for call in self._calls:
                seconds = self._clock - call.begun
                if seconds >= call.logged_at:
                    call.logged_at *= 2
                    _log.warning(
                        "The call %s of %s has taken %.3g s so far", call.name, call.caller, seconds
                    )


running_calls = RunningCalls()
"""The calls that this process is answering."""
