"""A queue that takes each record of a producer once, however often it is sent."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfhybrid.core.whole_file import write_whole
from tfhybrid.stream.queue import Queue, Record

PRODUCER = "producer"
NUMBER = "number"

_SNAPSHOT_RECORDS = 10_000  # how many a new writer may have to read again


class Numbered(NamedTuple):
    """A record as its producer sends it.

    Args:
        producer: Who sends it.
        number: Greater than those of the records that this producer sent before.
        record: What.
    """

    producer: str
    number: int
    record: Record


class NumberedWriter:
    """Appends records that carry their producer's name and a growing number, each once.

    Name and number are stored in the record. A new writer reads them from the queue, beginning
    where a small file beside it says; so no crash can part a record from its number.

    Args:
        queue: Open for writing, by nobody else.
        snapshot: The file. If it is lost, all records that the queue keeps are read.

    Example:

    >>> import tempfile
    >>> from tfhybrid.stream.log_queue import LogQueue
    >>> folder = tempfile.mkdtemp()
    >>> writer = NumberedWriter(LogQueue(folder + "/q", write=True), folder + "/numbers.json")
    >>> writer.append([Numbered("web-1", 0, Record(b"{}"))])
    1
    >>> writer.append([Numbered("web-1", 0, Record(b"{}"))])  # it is sent again
    0
    """

    def __init__(self, queue: Queue, snapshot: str | os.PathLike[str]) -> None:
        self.queue = queue
        self._snapshot = Path(snapshot)
        self._numbers: dict[str, int] = {}
        self._read_to = queue.begin()
        self._saved_at = self._read_to
        self._load()
        self._catch_up()

    def last_number(self, producer: str) -> int | None:
        """Returns the number of a producer's last record in the queue, or `None`."""
        return self._numbers.get(producer)

    def append(self, records: Sequence[Numbered]) -> int:
        """Appends those records that the queue does not have yet.

        Returns:
            How many were new.

        Raises:
            StreamError: They could not be appended. Sending all of them again is safe.
        """
        numbers = dict(self._numbers)
        new = []
        for producer, number, record in records:
            if number > numbers.get(producer, -1):
                names = {PRODUCER: producer, NUMBER: str(number)}
                new.append(Record(record.payload, {**record.attributes, **names}))
                numbers[producer] = number
        if not new:
            return 0
        try:
            self._read_to = self.queue.append(new)
        except BaseException:
            self._catch_up()  # some may be there
            raise
        self._numbers = numbers
        if self._read_to - self._saved_at >= _SNAPSHOT_RECORDS:
            self._save()
        return len(new)

    def close(self) -> None:
        """Writes the file and closes the queue."""
        self._save()
        self.queue.close()

    def _catch_up(self) -> None:
        end = self.queue.end()
        while self._read_to < end:
            found = self.queue.read(self._read_to, wait_seconds=1.0)
            for _, record in found.records:
                if PRODUCER in record.attributes:
                    producer = record.attributes[PRODUCER]
                    self._numbers[producer] = int(record.attributes[NUMBER])
            self._read_to = found.next_offset

    def _load(self) -> None:
        try:
            offset, numbers = json.loads(self._snapshot.read_text())
        except (OSError, ValueError):
            return  # it only saves time
        if self._read_to <= offset <= self.queue.end():
            self._read_to = self._saved_at = offset
            self._numbers = dict(numbers)

    def _save(self) -> None:
        write_whole(self._snapshot, json.dumps([self._read_to, self._numbers]).encode())
        self._saved_at = self._read_to
