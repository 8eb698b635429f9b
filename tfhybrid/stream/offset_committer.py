"""Tells a broker how far its queues are in the weights that are saved, for monitors of lag."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from tfhybrid.errors import TfhybridError

_log = logging.getLogger("tfhybrid.stream")


class CommitsOffsets(Protocol):
    """A queue of a broker that keeps offsets of groups."""

    def commit(self, group: str, offset: int) -> None:
        """Keeps an offset."""

    def close(self) -> None:
        """Closes the connections."""


def group_of(model: str) -> str:
    """Returns the consumer group that shows how far a target model is.

    Example:

    >>> group_of("ads")
    'tfhybrid.ads'
    """
    return f"tfhybrid.{model}"


class OffsetCommitter:
    """Commits offsets after each base, on a thread of its own. Nothing is ever read from there.

    What is committed is in a base: what comes behind it may be handed out again after a crash, so
    a monitor never sees less lag than there is.

    Args:
        queues: Of a broker, by name.
        saved: Of each model: returns where each queue goes on behind its newest base.
        seconds: From one look to the next.
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
        """Ends the thread, and closes the queues."""
        self._ends.set()
        self._thread.join()
        for queue in self._queues.values():
            queue.close()

    def _run(self) -> None:
        while self._queues and not self._ends.wait(self._seconds):
            try:
                self._commit()
            except (TfhybridError, OSError) as error:
                _log.warning("Offsets are committed later: %s", error)

    def _commit(self) -> None:
        for model, saved in self._saved.items():
            for name, offset in saved().items():
                if name in self._queues and self._committed.get((model, name)) != offset:
                    self._queues[name].commit(group_of(model), offset)
                    self._committed[model, name] = offset
