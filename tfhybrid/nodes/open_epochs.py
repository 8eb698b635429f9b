"""Which data sets of a rank have batches under way, and what waits until none has."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator


class OpenEpochs:
    """The epochs of data sets that have begun and not ended. Thread-safe."""

    def __init__(self) -> None:
        # Of one thread too: it may collect an epoch that was given up while it pauses.
        self._lock = threading.RLock()
        self._open: collections.Counter[str] = collections.Counter()

    @contextlib.contextmanager
    def under_way(self, name: str) -> Iterator[None]:
        """An epoch that lasts as long as this; its begin waits while others pause.

        Args:
            name: Of the data set.
        """
        with self._lock:
            self._open[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[name] -= 1

    @contextlib.contextmanager
    def paused(self) -> Iterator[list[str]]:
        """Lets no epoch begin meanwhile; gives the names of the data sets that have one begun."""
        with self._lock:
            yield sorted(+self._open)
