"""The file of bad records and rows: none is dropped silently."""

from __future__ import annotations

import base64
import json
import logging
import os
from pathlib import Path

from tfhybrid.errors import CorruptFileError, DataError
from tfhybrid.stream.queues.queue import QueuePosition

_log = logging.getLogger("tfhybrid.stream")


class DeadLetters:
    """A file with one line of JSON for each bad row: queue, position, reason and payload.

    A row that is read again, after a crash or under another lease, is written once. Several threads
    may add rows; a row that two threads add at the same moment may be written twice. One process at
    a time may open the file.

    Args:
        path: Path of the file. If it exists, rows are appended to it.
        limit: Maximum number of bad rows in the file. From one more on, `add` raises.

    Raises:
        CorruptFileError: A line of the file is not a bad row written by this class.
        OSError: The file cannot be read or written.

    Example:

    >>> import tempfile
    >>> letters = DeadLetters(tempfile.mkdtemp() + "/bad.jsonl", limit=10)
    >>> letters.add("clicks", QueuePosition(3, 0), "no id", b"{}")
    >>> letters.count
    1
    """

    def __init__(self, path: str | os.PathLike[str], *, limit: int) -> None:
        self._path = Path(path)
        self._limit = limit
        self._known: set[tuple[str, QueuePosition]] = set()
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]  # a killed writer can leave half a line
        for number, line in enumerate(whole.splitlines()):
            try:
                letter = json.loads(line)
                self._known.add((letter["queue"], QueuePosition(letter["offset"], letter["row"])))
            except (ValueError, TypeError, KeyError) as error:
                raise CorruptFileError(
                    f"{self._path}, line {number + 1}, does not describe a bad row: {error}. "
                    "Move the file away"
                ) from error
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, len(whole))
        os.lseek(self._file, 0, os.SEEK_END)

    @property
    def count(self) -> int:
        """Number of bad rows in the file, those of earlier processes included."""
        return len(self._known)

    def add(self, queue: str, position: QueuePosition, reason: str, payload: bytes) -> None:
        """Writes a bad row to the file, unless it is there already.

        Args:
            queue: Name of the queue, or of another source.
            position: Position of the row.
            reason: Description of the fault.
            payload: The row, as the payload of a record; or a whole record that cannot be read.

        Raises:
            DataError: The file now has more rows than the limit. This row is written all the same.
            OSError: The file cannot be written.
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
            _log.warning("Bad row in %s at %s: %s (see %s)", queue, position, reason, self._path)
        if self.count > self._limit:
            raise DataError(
                f"At most {self._limit} bad rows are allowed. Received: {self.count}, the last in "
                f"{queue} at {position}: {reason}. Correct their producer, or raise the limit. "
                f"All of them are in {self._path}"
            )

    def close(self) -> None:
        """Closes the file. No row can be added afterwards."""
        os.close(self._file)
