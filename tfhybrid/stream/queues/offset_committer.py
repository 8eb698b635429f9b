"""Commits to a broker how far the saved weights have come in its queues, for monitors of lag."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from tfhybrid.errors import TfhybridError

_log = logging.getLogger("tfhybrid.stream")


class CommitsOffsets(Protocol):
    """Queue to which offsets can be committed: its broker stores one for each consumer group."""

    def commit(self, group: str, offset: int) -> None:
        """Stores an offset of a consumer group.

        Args:
            group: Name of the consumer group.
            offset: Offset of the group's next record.

        Raises:
            StreamError: The broker cannot be reached.
        """

    def close(self) -> None:
        """Closes the connections."""


def group_of(model: str) -> str:
    """Returns the name of the consumer group that shows the progress of a target model.

    Example:

    >>> group_of("ads")
    'tfhybrid.ads'
    """
    return f"tfhybrid.{model}"


class OffsetCommitter:
    """A thread that commits the offsets of each model's newest base to a broker.

    The committed offsets are only for monitors; tfhybrid never reads them. They cover only rows in
    a base. Later rows may be leased again after a crash, so a monitor never shows too little lag.
    If the broker or the sync unit cannot be reached, the thread logs it and tries again later.

    Args:
        queues: Queues of a broker, by name. This object closes them.
        saved: Function of each model, by model name, that returns the offset after its newest base
            for each queue. The thread calls it, and logs a `TfhybridError` or `OSError` of it.
        seconds: Time between two checks for a new base, in seconds.
    """

    def __init__(
        self,
        queues: Mapping[str, CommitsOffsets],
        saved: Mapping[str, Callable[[], Mapping[str, int]]],
        seconds: float,
    ) -> None:
        self._queues = queues
        self._saved = saved
        self._seconds = seconds
        self._committed: dict[tuple[str, str], int] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfhybrid-offsets", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the committer's thread, waits until the thread has ended, and closes the queues."""
        self._ends.set()
        self._thread.join()
        for queue in self._queues.values():
            queue.close()

    def _run(self) -> None:
        while self._queues and not self._ends.wait(self._seconds):
            try:
                self._commit()
            except (TfhybridError, OSError) as error:
                _log.warning("Cannot commit offsets, will try again later: %s", error)

    def _commit(self) -> None:
        for model, saved in self._saved.items():
            for name, offset in saved().items():
                if name in self._queues and self._committed.get((model, name)) != offset:
                    self._queues[name].commit(group_of(model), offset)
                    self._committed[model, name] = offset
