"""A trainer's log of the table versions that it reads, if rows may lack updates."""

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
    """Log of the versions that a trainer has read, for batches with a staleness. Thread-safe.

    The logs of all trainers suffice to compute a run again: they name the version of the rows of
    each batch, and the version that its update made.

    Args:
        take: Function that returns the reads since its last call.
    """

    def __init__(self, take: Callable[[], list[RowRead]]) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._batches: dict[int, str] = {}  # by ticket
        self._missing: collections.Counter[int] = collections.Counter()

    def write_to(self, path: Path) -> None:
        """Sets the file to which the log appends one JSON line per batch, table and owner.

        A later call changes the file. Without a file reads are only counted.

        Args:
            path: The file; it and its folder are made if they do not exist.

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
        """Records which batch has a ticket.

        Args:
            ticket: Ticket of the batch.
            batch: Identity of the batch, the text of a `BatchId`; the lines of the log contain it.
        """
        with self._lock:
            self._batches[ticket] = batch

    def forget(self, tickets: Sequence[int]) -> None:
        """Writes the reads so far, then forgets batches that are read no more.

        Args:
            tickets: Tickets of these batches.

        Raises:
            StoreError: The file cannot be written.
        """
        with self._lock:
            self._note()
            for ticket in tickets:
                self._batches.pop(ticket, None)

    def note(self) -> None:
        """Counts and writes the reads since the last call. Does nothing while no batch has a name.

        Raises:
            StoreError: The file cannot be written.
        """
        with self._lock:
            self._note()

    def missing(self) -> Mapping[int, int]:
        """Returns the number of reads since the start, by the number of updates that they lacked.

        Writes the reads since the last call first.

        Raises:
            StoreError: The file cannot be written.
        """
        with self._lock:
            self._note()
            return dict(self._missing)

    def _note(self) -> None:
        if not self._batches:  # no batch with a staleness is in use
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
            "applied": read.complete + 1,
        }


def middle(counts: Mapping[int, int]) -> int:
    """Returns the median of counted numbers; of two in the middle, the lower one.

    Args:
        counts: Count of each number.

    Raises:
        ValueError: There are no numbers.
    """
    left = (sum(counts.values()) + 1) // 2
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return number
    raise ValueError(f"A median needs at least one number. Received: {dict(counts)}")


def _unwritten(path: Path, error: OSError) -> StoreError:
    return StoreError(f"The log of reads {path} cannot be written: {error}")
