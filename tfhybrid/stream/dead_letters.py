"""The file of records and rows that could not be used: none is dropped silently."""

from __future__ import annotations

import base64
import json
import logging
import os
from pathlib import Path

from tfhybrid.errors import CorruptFileError, DataError
from tfhybrid.stream.queue import Position

_log = logging.getLogger("tfhybrid.stream")


class DeadLetters:
    """A file with a line of JSON for each bad row: queue, position, reason and payload.

    A row that comes again, after a crash or under another lease, is written once.

    Args:
        path: The file; it is continued if it exists.
        limit: How many there may be. One more stops the job.

    Raises:
        CorruptFileError: A line of the file is none of ours.

    Example:

    >>> import tempfile
    >>> letters = DeadLetters(tempfile.mkdtemp() + "/bad.jsonl", limit=10)
    >>> letters.add("clicks", Position(3, 0), "no id", b"{}")
    >>> letters.count
    1
    """

    def __init__(self, path: str | os.PathLike[str], *, limit: int) -> None:
        self._path = Path(path)
        self._limit = limit
        self._known: set[tuple[str, Position]] = set()
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]  # a killed writer leaves half a line
        for number, line in enumerate(whole.splitlines()):
            try:
                letter = json.loads(line)
                self._known.add((letter["queue"], Position(letter["offset"], letter["row"])))
            except (ValueError, TypeError, KeyError) as error:
                raise CorruptFileError(
                    f"{self._path}, line {number + 1}, is no dead letter: {error}"
                ) from error
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, len(whole))
        os.lseek(self._file, 0, os.SEEK_END)

    @property
    def count(self) -> int:
        """How many rows the file has."""
        return len(self._known)

    def add(self, queue: str, position: Position, reason: str, payload: bytes) -> None:
        """Writes a bad row, unless the file has it.

        Args:
            queue: Name of the queue.
            position: Of the row.
            reason: What is wrong with it.
            payload: Of its record.

        Raises:
            DataError: There are more than the limit.
        """
        if (queue, position) not in self._known:
            letter = {
                "queue": queue,
                "offset": position.offset,
                "row": position.row,
                "reason": reason,
                "payload": base64.b64encode(payload).decode(),
            }
            os.write(self._file, json.dumps(letter).encode() + b"\n")
            os.fdatasync(self._file)
            self._known.add((queue, position))
            _log.warning("Queue %s, %s: %s (see %s)", queue, position, reason, self._path)
        if self.count > self._limit:
            raise DataError(
                f"At most {self._limit} bad rows are borne. Received: {self.count}, the last in "
                f"queue {queue} at {position}: {reason}. {self._path} has all of them"
            )

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)
