"""The file of bad records and rows: none is dropped silently."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tfhybrid.core.whole_file import write_at
from tfhybrid.errors import DataError
from tfhybrid.stream.queues.decoded_rows import BadRow
from tfhybrid.stream.queues.queue import QueuePosition

_log = logging.getLogger("tfhybrid.stream")

_PAYLOAD_BYTES = 1 << 20  # of a row in the file; a longer payload is cut off


class DeadLetter(NamedTuple):
    """A bad row, with the reason why it is bad.

    Attributes:
        position: Position of the row.
        reason: Description of the fault.
        payload: The row, as the payload of a record; or a whole record that cannot be read.
    """

    position: QueuePosition
    reason: str
    payload: bytes


def letters_of(offset: int, bad: Iterable[BadRow]) -> list[DeadLetter]:
    """Returns the bad rows of a record as letters.

    Args:
        offset: Offset of the record, or its number.
        bad: Bad rows of the record.
    """
    return [DeadLetter(QueuePosition(offset, row.number), row.reason, row.payload) for row in bad]


class DeadLetters:
    """A file with one line of JSON for each bad row: queue, position, reason and payload.

    A row that is read again, after a crash or under another lease, is written once. A line is
    written whole or not at all. Lines for which the disk has no space are kept in memory, and
    written with the next ones; the stream goes on meanwhile. Of a payload over 1 MiB, the first MiB
    is written, and its size as `bytes`. Lines beyond `max_bytes` are not written, only counted; the
    log says so. Thread-safe. One process at a time may open the file.

    Args:
        path: Path of the file. If it exists, rows are appended to it. Lines that do not describe a
            bad row stay as they are, and are named in the log.
        limit: Maximum number of bad rows in the file. From one more on, `add` raises.
        max_bytes: Maximum size of the file, in bytes. Default 256 MiB.

    Raises:
        OSError: The file cannot be opened or read.

    Example:

    >>> import tempfile
    >>> letters = DeadLetters(tempfile.mkdtemp() + "/bad.jsonl", limit=10)
    >>> letters.add("clicks", QueuePosition(3, 0), "no id", b"{}")
    >>> letters.count
    1
    """

    def __init__(
        self, path: str | os.PathLike[str], *, limit: int, max_bytes: int = 256 << 20
    ) -> None:
        self._path = Path(path)
        self._limit = limit
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._known: set[tuple[str, QueuePosition]] = set()
        self._waiting = b""  # lines for which the disk had no space
        self._fault = ""  # reason why lines are not written, to log it once
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._size = self._read()
        os.ftruncate(self._file, self._size)  # a killed writer can leave half a line

    @property
    def count(self) -> int:
        """Number of bad rows, those of earlier processes included."""
        return len(self._known)

    def add(self, queue: str, position: QueuePosition, reason: str, payload: bytes) -> None:
        """Writes a bad row to the file, unless it is there already.

        Args:
            queue: Name of the queue, or of another source.
            position: Position of the row.
            reason: Description of the fault.
            payload: The row, as the payload of a record; or a whole record that cannot be read.

        Raises:
            DataError: There are now more rows than the limit. This row is written all the same.
        """
        self.add_all(queue, [DeadLetter(position, reason, payload)])

    def add_all(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Writes bad rows to the file, except those that are there already. Waits for the disk.

        Args:
            queue: Name of the queue, or of another source.
            letters: Bad rows, each with a position of its own.

        Raises:
            DataError: There are now more rows than the limit. These are written all the same.
        """
        with self._lock:
            new = [each for each in letters if (queue, each.position) not in self._known]
            self._known.update((queue, each.position) for each in new)
            if new:
                _log.warning(
                    "Bad rows in %s: %d, the first at %s: %s (see %s)",
                    *(queue, len(new), new[0].position, new[0].reason, self._path),
                )
            self._write(b"".join(_line(queue, each) for each in new))
        if letters and self.count > self._limit:
            last = letters[-1]
            raise DataError(
                f"At most {self._limit} bad rows are allowed. Received: {self.count}, the last in "
                f"{queue} at {last.position}: {last.reason}. Correct their producer, or raise the "
                f"limit. All of them are in {self._path}"
            )

    def close(self) -> None:
        """Closes the file, after one more try to write what waits. No row can be added then."""
        with self._lock:
            self._write(b"")
            os.close(self._file)

    def _read(self) -> int:
        """Notes the rows in the file; returns the number of bytes of its whole lines."""
        size = 0
        for number, line_bytes, key in read(self._path):
            size += line_bytes
            if key is None:
                _log.error(
                    "%s, line %d, does not describe a bad row, and is not counted",
                    *(self._path, number),
                )
            else:
                self._known.add(key)
        return size

    def _write(self, lines: bytes) -> None:
        if self._size + len(self._waiting) + len(lines) > self._max_bytes:
            self._tell(f"it has its maximum of {self._max_bytes} bytes; further rows are counted")
            lines = b""
        content = self._waiting + lines
        if not content:
            return
        try:
            write_at(self._file, content, self._size)
            os.fdatasync(self._file)
        except OSError as error:
            # What is left of a line is overwritten: the next content begins with this one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            self._waiting = content
            self._tell(f"{error}; bad rows are kept in memory until there is space")
            return
        self._size += len(content)
        self._waiting, self._fault = b"", ""

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            _log.error("Bad rows cannot be written to %s: %s", self._path, fault)
        self._fault = fault


def read(path: Path) -> Iterator[tuple[int, int, tuple[str, QueuePosition] | None]]:
    """Yields the whole lines of a file of bad rows; none if there is no file.

    Args:
        path: Path of the file.

    Yields:
        Number of a line, from 1, its size in bytes, and queue and position of its bad row; `None`
        instead of these if it does not describe one.

    Raises:
        OSError: The file cannot be read.
    """
    with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n"):
                yield number, len(line), _key_of(line)


def _key_of(line: bytes) -> tuple[str, QueuePosition] | None:
    try:
        letter = json.loads(line)
        return letter["queue"], QueuePosition(letter["offset"], letter["row"])
    except (ValueError, TypeError, KeyError):
        return None


def _line(queue: str, letter: DeadLetter) -> bytes:
    fields = {
        "queue": queue,
        "offset": letter.position.offset,
        "row": letter.position.row,
        "reason": letter.reason,
        "payload": base64.b64encode(letter.payload[:_PAYLOAD_BYTES]).decode(),
    }
    if len(letter.payload) > _PAYLOAD_BYTES:
        fields["bytes"] = len(letter.payload)
    return json.dumps(fields).encode() + b"\n"
