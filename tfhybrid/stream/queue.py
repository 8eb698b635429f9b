"""What a queue of training data is: an append-only sequence of records, read by offset."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Position(NamedTuple):
    """A place between two rows of a queue.

    Positions are compared as tuples are: first by record, then by row.

    Args:
        offset: Of a record.
        row: Of that record; rows before it lie before the position.

    Example:

    >>> Position(4, 10) < Position(5, 0)
    True
    """

    offset: int
    row: int


@dataclasses.dataclass(frozen=True)
class Record:
    """What a queue stores.

    Args:
        payload: One row or many; see `tfhybrid.stream.rows`.
        attributes: What the writer says about it.
    """

    payload: bytes
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)


class StoredRecord(NamedTuple):
    """A record in a queue.

    Args:
        offset: Where. Offsets grow along a queue; some may be missing.
        record: What.
    """

    offset: int
    record: Record


@dataclasses.dataclass(frozen=True)
class Slice:
    """What one call of `Queue.read` found.

    Args:
        records: In order; empty if there were none in time.
        next_offset: Where to read on. It may grow without records: not every offset has one.
    """

    records: tuple[StoredRecord, ...]
    next_offset: int


class Queue(Protocol):
    """A queue. One process writes it; any number read.

    Readers keep their own positions: a queue knows nothing about who has read what.
    """

    @property
    def name(self) -> str:
        """By which messages name it."""

    def append(self, records: Sequence[Record]) -> int:
        """Appends records. They are safe when it returns.

        Returns:
            The offset at which the next record will lie, or a later one.

        Raises:
            StreamError: They could not be written. Some may have been: `NumberedWriter` finds out.
            OutOfSpaceError: The disk is full; none was written.
        """

    def read(self, offset: int, *, most: int = 1000, wait_seconds: float = 0.0) -> Slice:
        """Reads records from an offset on.

        Args:
            offset: Of the first, or of none: then the next one that exists is the first.
            most: How many.
            wait_seconds: How long to wait if there is none yet.

        Raises:
            PositionLostError: The records there are gone, or the queue ends before the offset.
            StreamError: The queue cannot be reached.
            CorruptFileError: A record is damaged.
        """

    def begin(self) -> int:
        """Returns the offset of the oldest record that is kept."""

    def end(self) -> int:
        """Returns the offset behind the last record."""

    def close(self) -> None:
        """Lets go of files and connections."""
