"""How much memory of its own a process takes at most."""

from __future__ import annotations

import threading
from pathlib import Path


class PeakGrowth(threading.Thread):
    """Watches this process's anonymous memory, in which pages of the store do not count."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done = threading.Event()
        self._before = _anonymous_bytes()
        self._most = self._before
        self.start()

    def run(self) -> None:
        """Looks every few milliseconds until `stop`."""
        while not self._done.wait(0.02):
            self._most = max(self._most, _anonymous_bytes())

    def stop(self) -> int:
        """Returns the most bytes at once, above those before the start."""
        self._done.set()
        self.join()
        return max(self._most, _anonymous_bytes()) - self._before


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
