"""Which data sets of a rank have an epoch under way, and how they pause together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol


class Paused(Protocol):
    """A data set with an epoch under way, while it does nothing: `Feed`."""

    def settle(self) -> None:
        """Receives what data nodes were asked for."""

    def follow(self) -> None:
        """Has data nodes send keys to where the rows are now."""


class OpenEpochs:
    """The epochs of data sets that have begun and not ended. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: list[Paused] = []
        self._working = 0  # data sets
        self._pausing: int | None = None  # the thread that has them all pause

    @contextlib.contextmanager
    def under_way(self, feed: Paused) -> Iterator[None]:
        """An epoch that lasts as long as this.

        Args:
            feed: The data set.
        """
        with self._changed:
            self._open.append(feed)
        try:
            yield
        finally:
            with self._changed:
                self._open.remove(feed)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """What a data set does with data nodes; not while others pause."""
        with self._changed:
            # The thread that pauses may collect an epoch that was given up, which then ends.
            self._changed.wait_for(lambda: self._pausing in (None, threading.get_ident()))
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def paused(self) -> Iterator[list[Paused]]:
        """Has all data sets pause; gives those that have an epoch under way."""
        with self._changed:
            self._changed.wait_for(lambda: self._pausing is None)
            self._pausing = threading.get_ident()
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._working == 0)
                paused = list(self._open)
            yield paused
        finally:
            with self._changed:
                self._pausing = None
                self._changed.notify_all()
