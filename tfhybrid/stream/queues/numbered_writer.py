"""A writer of a queue that appends each record of a producer once, however often it is sent."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfhybrid.core.checked_object import encoded, without_checksum
from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import ConfigError, CorruptFileError, DataError
from tfhybrid.stream.queues.queue import Queue, Record

_log = logging.getLogger("tfhybrid.stream")

PRODUCER = "producer"
NUMBER = "number"
POSITION = "position"

_SNAPSHOT_RECORDS = 10_000  # number of records between snapshots, which a new writer reads again


class Numbered(NamedTuple):
    """A record with the name and the number that its producer gave it.

    Args:
        producer: Name of the producer.
        number: Number of the record, greater than that of this producer's record before.
        record: The record.
        position: Description of where the record ends in the producer's source. Default none.
    """

    producer: str
    number: int
    record: Record
    position: str = ""


class LastRecord(NamedTuple):
    """The last record of a producer that a queue has.

    Args:
        number: Number of the record.
        position: Description of where it ends in the producer's source; empty if the producer gave
            none.
    """

    number: int
    position: str = ""


class NumberedWriter:
    """The only writer of a queue; appends each numbered record once. Not thread-safe.

    Producer, number and position are stored in the record itself, so no crash can separate a record
    from them. A new writer reads the last numbers from a snapshot file, and then from the records
    appended since.

    Args:
        queue: Queue open for writing. This writer closes it.
        snapshot: Path of the snapshot file. If the file is lost or damaged, all records of the
            queue are read. If it cannot be written, the error is logged and the next snapshot has
            everything. A record that retention has removed, and that no snapshot knew, may be
            stored once more if its producer sends it again.

    Raises:
        StreamError: The queue cannot be read.
        CorruptFileError: A record of the queue is damaged.

    Example:

    >>> import tempfile
    >>> from tfhybrid.stream.queues.log_queue import LogQueue
    >>> folder = tempfile.mkdtemp()
    >>> writer = NumberedWriter(LogQueue(folder + "/q", write=True), folder + "/numbers.json")
    >>> writer.append([Numbered("web-1", 0, Record(b"{}"))])
    1
    >>> writer.append([Numbered("web-1", 0, Record(b"{}"))])  # sent again
    0
    """

    def __init__(self, queue: Queue, snapshot: str | os.PathLike[str]) -> None:
        self.queue = queue
        self._snapshot = Path(snapshot)
        self._last: dict[str, LastRecord] = {}
        self._read_to = queue.begin()
        self._saved_at = self._read_to
        self._load()
        self._catch_up()

    def append(self, records: Sequence[Numbered]) -> int:
        """Appends the records that the queue does not have yet.

        A record counts as stored if its number is not above that of the last record of its
        producer. A record with a position must then be that last record, with the same position.

        Args:
            records: Records of one or more producers. The records of each producer are in the order
                of their numbers.

        Returns:
            Number of records that were new.

        Raises:
            DataError: The queue has another record of this number, or a record is above the limit
                of a broker. No record was appended.
            StreamError: The records could not be appended, or some were and others not. It is safe
                to pass all of them again.
            NameTakenError: Another process writes the queue now; no record was appended.
            OutOfSpaceError: The disk is full; no record was appended.
        """
        new, stored = self._new(records)
        if not new:
            return 0
        try:
            self._read_to = self.queue.append(new)
        except BaseException:
            self._catch_up()  # some records may have been written
            raise
        self._last = stored
        if self._read_to - self._saved_at >= _SNAPSHOT_RECORDS:
            self._save()
        return len(new)

    def last(self, producer: str) -> LastRecord | None:
        """Returns the last record of a producer; `None` if there is none.

        Args:
            producer: Name of the producer.
        """
        return self._last.get(producer)

    def close(self) -> None:
        """Writes the snapshot file and closes the queue."""
        self._save()
        self.queue.close()

    def _new(self, records: Sequence[Numbered]) -> tuple[list[Record], dict[str, LastRecord]]:
        """Returns the records to append, and the last record of each producer behind them."""
        stored = dict(self._last)
        new = []
        for producer, number, record, position in records:
            last = stored.get(producer)
            if last is not None and number <= last.number:
                _check_same(producer, LastRecord(number, position), last)
                continue
            names = {PRODUCER: producer, NUMBER: str(number)}
            if position:
                names[POSITION] = position
            new.append(Record(record.payload, {**record.attributes, **names}))
            stored[producer] = LastRecord(number, position)
        return new, stored

    def _catch_up(self) -> None:
        end = self.queue.end()
        while self._read_to < end:
            chunk = self.queue.read(self._read_to, wait_seconds=1.0)
            for _, record in chunk.records:
                number = record.attributes.get(NUMBER, "")
                # Records of other producers may have attributes of these names.
                if PRODUCER in record.attributes and number.isascii() and number.isdecimal():
                    last = LastRecord(int(number), record.attributes.get(POSITION, ""))
                    self._last[record.attributes[PRODUCER]] = last
            self._read_to = chunk.next_offset

    def _load(self) -> None:
        try:
            offset, stored = _read(self._snapshot)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, CorruptFileError) as error:
            _log.warning("Reading all records of the queue for their numbers instead: %s", error)
            return
        if offset <= self.queue.end():  # retention may have removed records behind it
            self._read_to = self._saved_at = max(self._read_to, offset)
            self._last = stored

    def _save(self) -> None:
        fields = {"offset": self._read_to, "last": self._last}
        self._saved_at = self._read_to
        try:
            write_whole(self._snapshot, encoded(fields))
        except OSError as error:  # the records have the numbers, too
            _log.warning(
                "%s could not be written: %s. The next start of the provider reads more records",
                *(self._snapshot, error),
            )


class ForeignWriters:
    """The writers of a queue into which this stream puts nothing, in the place of its writer.

    Args:
        name: Name of the queue in `stream.yaml`.
        queue: Queue open for reading. This object closes it.
    """

    def __init__(self, name: str, queue: Queue) -> None:
        self._name = name
        self.queue = queue

    def append(self, records: Sequence[Numbered]) -> int:
        """Refuses records.

        Args:
            records: Records of any producer.

        Raises:
            ConfigError: Always.
        """
        producers = sorted({record.producer for record in records})
        raise ConfigError(
            f"Only other programs write the queue {self._name}, because `stream.yaml` says "
            f"`ours: no`. Put rows into another queue. Received: records of {producers}"
        )

    def last(self, producer: str) -> None:
        """Returns `None`: the records of such a queue have no producers and numbers of ours.

        Args:
            producer: Name of the producer.
        """

    def close(self) -> None:
        """Closes the queue."""
        self.queue.close()


def _read(snapshot: Path) -> tuple[int, dict[str, LastRecord]]:
    """Returns an offset, and the last record of each producer before it."""
    content = json.loads(snapshot.read_bytes())
    if isinstance(content, list):  # written by an earlier version, without positions
        offset, numbers = content
        content = {"offset": offset, "last": {name: [each] for name, each in numbers.items()}}
    fields = without_checksum(content, snapshot)
    stored = {name: LastRecord(*last) for name, last in fields["last"].items()}
    return int(fields["offset"]), stored


def _check_same(producer: str, sent: LastRecord, last: LastRecord) -> None:
    """Raises `DataError` if a record with a position is not the last one that the queue has."""
    if sent.position and sent != last:
        raise DataError(
            f"Record {sent.number} of producer {producer} must be the one that the queue has. Is "
            f"another process feeding the same source? Received: position {sent.position}, but the "
            f"last record is number {last.number}, position {last.position or 'unknown'}"
        )
