"""A lock that many may share, or one may have alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class SharedLock:
    """Whoever wants it alone goes before those that come later to share it: it is not starved.

    Example:

    >>> lock = SharedLock()
    >>> with lock.shared():
    ...     pass  # beside others
    >>> with lock.alone():
    ...     pass  # beside nobody
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._alone = False
        self._wanted_alone = 0

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Has the lock together with others."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._wanted_alone)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Has the lock alone."""
        with self._changed:
            self._wanted_alone += 1
            self._changed.wait_for(lambda: not self._alone and not self._sharing)
            self._wanted_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
