"""Registry of the data sets of a rank that have an open epoch, and a way to pause them all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol


class Pausing(Protocol):
    """A data set with an open epoch, such as `Feed`.

    Its methods may only be called while `OpenEpochs.paused` holds the data set.
    """

    def settle(self) -> None:
        """Receives the batches that were requested, so that owners hold all keys of a data set.

        Raises:
            PeerDiedError: A data node is lost and did not come back.
        """

    def follow(self) -> None:
        """Tells data nodes to send keys to the current owners, after shards have moved."""


class OpenEpochs:
    """The data sets of a rank that have an open epoch. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: list[Pausing] = []
        self._working = 0  # number of data sets that talk to data nodes now
        self._paused = False

    def add(self, feed: Pausing) -> None:
        """Adds a data set, whose epoch has begun."""
        with self._changed:
            self._open.append(feed)

    def remove(self, feed: Pausing) -> None:
        """Removes a data set, whose epoch has ended.

        Raises:
            ValueError: The data set was not added.
        """
        with self._changed:
            self._open.remove(feed)

    @property
    def under_way(self) -> list[Pausing]:
        """New list of the data sets that have an open epoch, in the order of the calls of `add`."""
        with self._changed:
            return [*self._open]

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Context in which a data set talks to data nodes; waits to enter while all are paused.

        Any thread may enter it, also several at the same time.
        """
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
        """Context in which all data sets are paused.

        Only one thread at a time may enter it, and none that is inside `working()`. To enter it
        waits until no data set is inside `working()`, which includes data sets that wait for the
        answer of a data node.

        Yields:
            The data sets that have an open epoch.
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
