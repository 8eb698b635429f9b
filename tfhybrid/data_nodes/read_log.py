"""A trainer's log of the versions that it reads, where the rows of a batch may lack updates."""

from __future__ import annotations

import collections
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfhybrid.core.split_batches import RowRead
from tfhybrid.errors import StoreError


class ReadLog:
    """What a trainer has read of batches with a staleness. Thread-safe.

    With the log of every trainer a run can be computed again: a batch's rows are those of the
    versions that were read, and its update is the applied version.

    Args:
        take: Returns what was read since it was last called.
    """

    def __init__(self, take: Callable[[], list[RowRead]]) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._batches: dict[int, str] = {}  # by ticket
        self._missing: collections.Counter[int] = collections.Counter()

    def write_to(self, path: Path) -> None:
        """Appends a line to a file for each table and owner of a batch, from now on.

        Raises:
            StoreError: The file cannot be written.
        """
        with self._lock:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a", encoding="utf-8"):
                    pass
            except OSError as error:
                raise _unwritten(path, error) from error
            self._path = path

    def name(self, ticket: int, batch: str) -> None:
        """Notes which batch has a ticket."""
        with self._lock:
            self._batches[ticket] = batch

    def forget(self, tickets: Sequence[int]) -> None:
        """Forgets batches that nobody reads any longer, once what was read is noted."""
        with self._lock:
            self._note()
            for ticket in tickets:
                self._batches.pop(ticket, None)

    def note(self) -> None:
        """Notes what was read since.

        Raises:
            StoreError: The file cannot be written.
        """
        with self._lock:
            self._note()

    def missing(self) -> Mapping[int, int]:
        """Returns how often how many updates were missing."""
        with self._lock:
            self._note()
            return dict(self._missing)

    def _note(self) -> None:
        if not self._batches:  # nothing with a staleness was handed out
            return
        reads = self._take()
        self._missing.update(read.missing for read in reads)
        if self._path is None or not reads:
            return
        lines = "".join(json.dumps(self._line(read)) + "\n" for read in reads)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise _unwritten(self._path, error) from error

    def _line(self, read: RowRead) -> dict[str, Any]:
        return {
            "batch": self._batches.get(read.ticket),
            "table": read.table,
            "owner": read.owner,
            "read": read.version,
            "applied": read.wanted + 1,
        }


def middle(counts: Mapping[int, int]) -> int:
    """Returns the median of numbers that occurred so many times each; the lower one of two."""
    left = (sum(counts.values()) + 1) // 2
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return number
    raise ValueError("There are no numbers")


def _unwritten(path: Path, error: OSError) -> StoreError:
    return StoreError(f"The log of reads {path} cannot be written: {error}")
