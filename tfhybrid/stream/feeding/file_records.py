"""The records of a file: groups of lines, each with the digest of the file up to its end."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tfhybrid.errors import DataError
from tfhybrid.stream.queues.numbered_writer import LastRecord
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.rows import of_lines


class FileRecord(NamedTuple):
    """A record of a file.

    Attributes:
        number: Number of the record: bytes of the file before it.
        record: The record.
        lines: Number of lines with rows. An Arrow stream, or a list over several lines, counts as
            one.
        position: End of the record in bytes, and the digest of the file up to there, as text.
    """

    number: int
    record: Record
    lines: int
    position: str


def file_records(file: Path, rows: int, last: LastRecord | None) -> Iterator[FileRecord]:
    """Yields the records of a file from the last one that was fed on, which is the first to come.

    Lines of objects are put together. A line that is a list is a record, and so is a list over
    several lines or an Arrow stream. Lines may be added to a file of lines that was fed before. A
    byte order mark is left out, and positions begin after it.

    Args:
        file: Path of the file.
        rows: Maximum number of lines of objects in a record.
        last: Last record of the file that a queue has; `None` if there is none.

    Raises:
        DataError: The file does not begin with the content that was fed, or is not a file of lines
            and has grown.
        OSError: The file cannot be read.
    """
    content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    fed_to = 0 if last is None else _checked_end(file, content, last)
    begin = 0 if last is None else last.number
    of_objects = content.lstrip()[:1] == b"{"
    digest = hashlib.sha256(content[:begin])
    if of_objects or _is_lists(content):
        pieces = _groups(file, content, begin, fed_to, rows if of_objects else 1)
    else:
        pieces = _whole(file, content, fed_to)
    for end, lines in pieces:
        digest.update(content[begin:end])
        position = json.dumps({"end": end, "sha256": digest.hexdigest()})
        record = of_lines(lines) if of_objects else Record(lines[0])
        yield FileRecord(begin, record, len(lines), position)
        begin = end


def _checked_end(file: Path, content: bytes, last: LastRecord) -> int:
    """Returns the byte up to which a file was fed, after a check that it is the same file."""
    if not last.position:
        raise DataError(
            f"{file} was fed by a version that kept no digests, so what is new in it is not known. "
            f"Feed the new rows as a file of another name. Received: record {last.number}"
        )
    fields = json.loads(last.position)
    end: int = fields["end"]
    if end > len(content) or hashlib.sha256(content[:end]).hexdigest() != fields["sha256"]:
        raise DataError(
            f"{file} must begin with the {end} bytes that were fed under this name. Feed other "
            f"content as a file of another name. Received: {len(content)} bytes that begin "
            "otherwise"
        )
    return end


def _whole(file: Path, content: bytes, fed_to: int) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yields the end of a file that is one record, and its content."""
    if 0 < fed_to < len(content):
        raise DataError(
            f"{file} was fed as one record and has grown since, but only files of lines may grow. "
            f"Feed its new rows as a file of another name. Received: {len(content)} bytes, of "
            f"which {fed_to} were fed"
        )
    if content.strip():
        yield len(content), [content]


def _groups(
    file: Path, content: bytes, begin: int, fed_to: int, count: int
) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yields the end of each record from `begin` on, and its lines; one record ends at `fed_to`."""
    end = begin
    lines: list[bytes] = []
    for line in content[begin:].splitlines(keepends=True):
        if end < fed_to < end + len(line):
            raise DataError(
                f"{file} was fed up to the middle of a line, which has grown since. Feed its new "
                f"rows as a file of another name. Received: a line from byte {end} to "
                f"{end + len(line)}, fed up to {fed_to}"
            )
        end += len(line)
        if line.strip():
            lines.append(line.rstrip(b"\r\n"))
        if end == fed_to or (end > fed_to and len(lines) == count):
            yield end, lines
            lines = []
    if lines:
        yield end, lines


def _is_lists(content: bytes) -> bool:
    if content.lstrip()[:1] != b"[":
        return False
    lines = [line for line in content.splitlines() if line.strip()]
    return len(lines) > 1 and all(map(_is_list, lines))


def _is_list(line: bytes) -> bool:
    text = line.strip()
    return text.startswith(b"[") and text.endswith(b"]")
