"""How long the processes of a stream take to come back after they were killed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from tfhybrid.errors import TfhybridError


class RecoveryTimes:
    """Measures, on a thread for each kill, when a role works again.

    A role that is killed again before it worked is measured from the later kill alone.

    Args:
        works: Of each role, what waits until it works, and raises a `TfhybridError` if it does not;
            then it is called again.
    """

    def __init__(self, works: dict[str, Callable[[], object]]) -> None:
        self._works = works
        self._seconds: dict[str, list[float]] = {}
        self._kills: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()

    def begin(self, role: str) -> None:
        """Begins to measure; call it when the role has been killed."""
        self._kills[role] += 1
        arguments = (role, self._kills[role], time.monotonic())
        self._threads.append(threading.Thread(target=self._wait, args=arguments, daemon=True))
        self._threads[-1].start()

    def _wait(self, role: str, kill: int, killed: float) -> None:
        while self._kills[role] == kill and not self._ended.is_set():
            with contextlib.suppress(TfhybridError):
                self._works[role]()
                if self._kills[role] == kill:
                    self._seconds.setdefault(role, []).append(time.monotonic() - killed)
                return
            time.sleep(0.02)

    def summary(self, seconds: float = 60.0) -> dict[str, dict[str, float]]:
        """Waits for roles that were killed last; returns kills and seconds of each role."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        self._ended.set()
        return {
            role: {
                "kills": self._kills[role],
                "measured": len(found),
                "p50_seconds": float(np.median(found)),
                "max_seconds": max(found),
            }
            for role, found in sorted(self._seconds.items())
        }
