"""One file of a queue in a directory: a header, then records, each with its checksum.

    header   magic "tfhqueue", u32 version, u32 crc of the offset, i64 offset of the first record
    record   magic "tfhr", u32 bytes of the body, u32 crc of offset and body, body
    body     u32 bytes of the attributes, the attributes as JSON, payload

Integers are little-endian. The checksum covers the record's offset, so that a record is believed in
its own place alone.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from tfhybrid.core import native
from tfhybrid.errors import CorruptFileError
from tfhybrid.stream.queue import Record

_MAGIC = b"tfhqueue"
_VERSION = 1
_HEADER = struct.Struct("<8sIIq")
_FRAME = struct.Struct("<4sII")
_FRAME_MAGIC = b"tfhr"  # by which whole records behind a damaged one are found
_LENGTH = struct.Struct("<I")
_OFFSET = struct.Struct("<q")
MOST_BYTES = 1 << 30  # of a record: a greater length is damage

SUFFIX = ".log"


def path_of(folder: Path, first: int) -> Path:
    """Returns the file of the segment that begins at an offset."""
    return folder / f"{first:020d}{SUFFIX}"


def first_of(path: Path) -> int:
    """Returns the offset of the first record of a segment, which its name is."""
    return int(path.stem)


def header(first: int) -> bytes:
    """Returns what a segment begins with."""
    return _HEADER.pack(_MAGIC, _VERSION, native.crc32c(_OFFSET.pack(first)), first)


HEADER_BYTES = _HEADER.size


def check_header(path: Path, content: bytes) -> None:
    """Checks the beginning of a segment.

    Raises:
        CorruptFileError: It is not that of this file.
    """
    if content != header(first_of(path)):
        raise CorruptFileError(
            f"{path} is no segment of a queue, version {_VERSION}. Received: it begins with "
            f"{content[:12]!r}"
        )


def frame(offset: int, record: Record) -> bytes:
    """Returns the bytes of a record in a segment."""
    attributes = json.dumps(dict(record.attributes), separators=(",", ":")).encode()
    body = _LENGTH.pack(len(attributes)) + attributes + record.payload
    return _FRAME.pack(_FRAME_MAGIC, len(body), _crc(offset, body)) + body


class SegmentReader:
    """Reads the records of a segment one after the other.

    Args:
        file: Descriptor of the segment; `pread` reads it, so it may be shared.
        path: Of the file, for messages.
        offset: Of the record to begin with.
        place: Its first byte.
    """

    def __init__(self, file: int, path: Path, offset: int, place: int) -> None:
        self._file = file
        self._path = path
        self.offset = offset
        self.place = place

    def next(self) -> Record | None:
        """Returns the next record, or `None` if the file ends before its end or it is damaged."""
        head = os.pread(self._file, _FRAME.size, self.place)
        if len(head) < _FRAME.size:
            return None
        magic, size, crc = _FRAME.unpack(head)
        if magic != _FRAME_MAGIC or not _LENGTH.size <= size <= MOST_BYTES:
            return None
        body = os.pread(self._file, size, self.place + _FRAME.size)
        if len(body) < size or _crc(self.offset, body) != crc:
            return None
        (length,) = _LENGTH.unpack_from(body)
        attributes = json.loads(body[_LENGTH.size : _LENGTH.size + length])
        record = Record(body[_LENGTH.size + length :], attributes)
        self.place += _FRAME.size + size
        self.offset += 1
        return record

    def ends_here(self) -> bool:
        """Whether nothing but a torn record, or nothing at all, lies behind the last record.

        A record that is followed by a whole one was not torn: it was damaged later.
        """
        rest = os.pread(self._file, os.fstat(self._file).st_size, self.place)
        found, passed = rest.find(_FRAME_MAGIC, 1), 0
        while found > 0:
            passed += 1  # at most so many records lie before
            for offset in range(self.offset + 1, self.offset + passed + 1):
                if SegmentReader(self._file, self._path, offset, self.place + found).next():
                    return False
            found = rest.find(_FRAME_MAGIC, found + 1)
        return True


def _crc(offset: int, body: bytes) -> int:
    return native.crc32c(body, native.crc32c(_OFFSET.pack(offset)))
