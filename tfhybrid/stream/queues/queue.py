"""The interface of a queue of training data: an append-only sequence of records, read by offset."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class QueuePosition(NamedTuple):
    """A point between two rows of a queue.

    Positions compare like tuples: first by record, then by row.

    Args:
        offset: Offset of a record.
        row: Number of a row in that record. The rows with smaller numbers lie before the position.

    Example:

    >>> QueuePosition(4, 10) < QueuePosition(5, 0)
    True
    """

    offset: int
    row: int


@dataclasses.dataclass(frozen=True)
class Record:
    """The unit that a queue stores.

    Args:
        payload: One row or many, encoded as in `tfhybrid.stream.queues.rows`.
        attributes: Texts by name, which the writer stores with the payload. Default: none.
    """

    payload: bytes
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)


class StoredRecord(NamedTuple):
    """A record in a queue.

    Args:
        offset: Offset of the record. Offsets increase along a queue; some may be unused.
        record: The record.
    """

    offset: int
    record: Record


@dataclasses.dataclass(frozen=True)
class Slice:
    """Result of one call of `Queue.read`.

    Args:
        records: Records in order of their offsets; empty if none arrived in time.
        next_offset: Offset at which to read next. It can grow even when there are no records,
            because some offsets are unused.
    """

    records: tuple[StoredRecord, ...]
    next_offset: int


class TopicState(NamedTuple):
    """A topic as its broker describes it.

    Args:
        id: Id of the topic. A topic that was deleted and made again has another one.
        partitions: Number of partitions.
    """

    id: str
    partitions: int


class Topic(Protocol):
    """A topic that other programs write. Each of its partitions is read as a queue."""

    def state(self) -> TopicState:
        """Returns the present id and number of partitions.

        Raises:
            StreamError: The topic does not exist, or the broker cannot be reached.
        """

    def open(self, partition: int) -> Queue:
        """Opens a partition for reading. The caller closes it.

        Args:
            partition: Number of the partition.
        """


class Queue(Protocol):
    """A queue, written by one process and read by any number of processes. Not thread-safe.

    Readers keep their own positions: a queue does not know who has read what.
    """

    @property
    def name(self) -> str:
        """Name of the queue in logs and errors."""

    def append(self, records: Sequence[Record]) -> int:
        """Appends records.

        They are durable when it returns, except in a `LogQueue` with `fsync="never"`.

        Args:
            records: Records to append, in order; at least one.

        Returns:
            Offset after the last record. The next record gets this offset or a later one.

        Raises:
            DataError: A record is above the limit of a broker; no record was written.
            StreamError: The queue is open for reading only, a record is too long, or the records
                could not be written. Some may have been written; `NumberedWriter` finds out which.
            NameTakenError: Another process writes the queue now; no record was written.
            OutOfSpaceError: The disk is full or cannot be written; no record was written.
        """

    def read(self, offset: int, *, max_records: int = 1000, wait_seconds: float = 0.0) -> Slice:
        """Reads the records from an offset on. Waits only for the first one.

        Args:
            offset: Offset of the first record. If it is unused, reading starts at the next record.
            max_records: Maximum number of records. Default 1000.
            wait_seconds: Maximum time to wait for the first record, in seconds. Default 0.

        Returns:
            The records, and the offset at which to read next.

        Raises:
            PositionLostError: The records at the offset were removed, or the queue ends before it.
            StreamError: The queue cannot be reached.
            CorruptFileError: A record is damaged.
        """

    def begin(self) -> int:
        """Returns the offset at which the queue begins: that of its oldest record, or `end()`.

        Raises:
            StreamError: The queue cannot be reached.
        """

    def end(self) -> int:
        """Returns the offset after the last record, which the next record gets or exceeds.

        Raises:
            StreamError: The queue cannot be reached.
            CorruptFileError: The newest file is damaged.
        """

    def close(self) -> None:
        """Closes files and connections. The queue cannot be used afterwards."""
