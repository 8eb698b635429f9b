"""A readers-writer lock."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class SharedLock:
    """Lock that many threads may hold together, or one thread alone. Not reentrant.

    A thread that waits to hold it alone goes before threads that ask later to share it, so readers
    cannot starve a writer.

    Example:

    >>> lock = SharedLock()
    >>> with lock.shared():
    ...     pass  # others may share the lock now
    >>> with lock.alone():
    ...     pass  # no other thread holds the lock now
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._alone = False
        self._waiting_alone = 0  # threads

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the lock during the block, together with other threads that share it.

        Waits while a thread holds the lock alone, or waits to do so.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting_alone)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the lock alone during the block; waits until no other thread holds it."""
        with self._changed:
            self._waiting_alone += 1
            self._changed.wait_for(lambda: not self._alone and not self._sharing)
            self._waiting_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
