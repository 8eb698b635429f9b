"""How much shared memory is in use at most, by the kernel's count."""

from __future__ import annotations

import os
import threading


class PeakUse(threading.Thread):
    """Watches the file system of the store: a table that grows may for a moment need more."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._directory = os.environ.get("TFHYBRID_SHM_DIR", "/dev/shm")
        self._before = self._used()
        self._done = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        """Looks every few milliseconds until `stop`."""
        while not self._done.wait(0.005):
            self.bytes = max(self.bytes, self._used() - self._before)

    def stop(self) -> int:
        """Returns the most bytes that were in use at once, above those before the start."""
        self._done.set()
        self.join()
        return self.bytes

    def _used(self) -> int:
        status = os.statvfs(self._directory)
        return (status.f_blocks - status.f_bfree) * status.f_frsize
