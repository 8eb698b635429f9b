"""Which data sets of a rank have an epoch under way, and how they pause together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol


class Pausing(Protocol):
    """A data set with an epoch under way: `Feed`. Both are called while it pauses."""

    def settle(self) -> None:
        """Receives what data nodes were asked for."""

    def follow(self) -> None:
        """Has data nodes send keys to where the rows are now."""


class OpenEpochs:
    """The epochs of data sets that have begun and not ended. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: list[Pausing] = []
        self._working = 0  # data sets
        self._paused = False

    def add(self, feed: Pausing) -> None:
        """Notes that a data set has an epoch under way."""
        with self._changed:
            self._open.append(feed)

    def remove(self, feed: Pausing) -> None:
        """Notes that it has ended."""
        with self._changed:
            self._open.remove(feed)

    @property
    def under_way(self) -> list[Pausing]:
        """The data sets that have one."""
        with self._changed:
            return [*self._open]

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """What a data set does with data nodes; waits while all pause."""
        with self._changed:
            self._changed.wait_for(lambda: not self._paused)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def paused(self) -> Iterator[list[Pausing]]:
        """Has all data sets pause; gives those that have an epoch under way.

        One thread at a time. It waits for data sets that wait for a data node.
        """
        with self._changed:
            self._paused = True
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._working == 0)
            yield self.under_way
        finally:
            with self._changed:
                self._paused = False
                self._changed.notify_all()
