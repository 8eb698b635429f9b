"""The format of a segment, one file of a queue in a directory: a header, then records.

    header   magic "tfhqueue", u32 version, u32 crc of the offset, i64 offset of the first record
    record   magic "tfhr", u32 bytes of the body, u32 crc of offset and body, body
    body     u32 bytes of the attributes, the attributes as JSON, payload

Integers are little-endian. The checksum covers the record's offset, so a record that was copied to
another offset is detected as damage.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from tfhybrid.core import native
from tfhybrid.errors import CorruptFileError
from tfhybrid.stream.queues.queue import Record

_MAGIC = b"tfhqueue"
_VERSION = 1
_HEADER = struct.Struct("<8sIIq")
_FRAME = struct.Struct("<4sII")
_FRAME_MAGIC = b"tfhr"  # finds the complete records after a damaged one
_LENGTH = struct.Struct("<I")
_OFFSET = struct.Struct("<q")
MAX_BYTES = 1 << 30  # maximum size of a record; a greater length is damage

SUFFIX = ".log"


def path_of(folder: Path, first: int) -> Path:
    """Returns the path of a segment, a file of a queue.

    Args:
        folder: Folder of the queue.
        first: Offset of the segment's first record.
    """
    return folder / f"{first:020d}{SUFFIX}"


def first_of(path: Path) -> int:
    """Returns the offset of the first record of a segment (a file of a queue), read from its path.

    Args:
        path: Path of the segment, as `path_of` returns it.

    Raises:
        ValueError: The name is not a number.
    """
    return int(path.stem)


def firsts_in(folder: Path) -> list[int]:
    """Returns the offsets of the first records of all segments of a queue, in order.

    Args:
        folder: Folder of the queue.
    """
    return sorted(map(first_of, folder.glob(f"*{SUFFIX}")))


def header(first: int) -> bytes:
    """Returns the header of a segment: the `HEADER_BYTES` bytes before its first record.

    Args:
        first: Offset of the segment's first record.
    """
    return _HEADER.pack(_MAGIC, _VERSION, native.crc32c(_OFFSET.pack(first)), first)


HEADER_BYTES = _HEADER.size


def check_header(path: Path, content: bytes) -> None:
    """Checks the header of a segment.

    Args:
        path: Path of the segment; its name is the offset of the first record.
        content: First `HEADER_BYTES` of the segment.

    Raises:
        CorruptFileError: `content` is not the header of this file.
    """
    if content != header(first_of(path)):
        raise CorruptFileError(
            f"{path} is not a segment of a queue in format version {_VERSION}. Received: a file "
            f"that begins with {content[:12]!r}"
        )


def frame(offset: int, record: Record) -> bytes:
    """Returns the bytes that store a record at an offset of the queue.

    Args:
        offset: Offset of the record in its queue, not in the file.
        record: Record to store.
    """
    attributes = json.dumps(dict(record.attributes), separators=(",", ":")).encode()
    body = _LENGTH.pack(len(attributes)) + attributes + record.payload
    return _FRAME.pack(_FRAME_MAGIC, len(body), _crc(offset, body)) + body


class SegmentReader:
    """A reader of a segment's records, one after the other. Not thread-safe.

    Args:
        file: Descriptor of the segment, owned by the caller. It is read with `pread`, so other
            readers may use it at the same time.
        path: Path of the file, for errors.
        offset: Offset of the first record to read.
        byte: Byte in the file at which that record begins.

    Attributes:
        file: The argument.
        offset: Offset of the next record.
        byte: Byte in the file at which the next record begins.
    """

    def __init__(self, file: int, path: Path, offset: int, byte: int) -> None:
        self.file = file
        self._path = path
        self.offset = offset
        self.byte = byte

    def next(self) -> Record | None:
        """Returns the record at `offset`, and advances to the one behind it. Does not wait.

        Returns `None`, and does not advance, if that record is missing, incomplete or damaged.
        """
        head = os.pread(self.file, _FRAME.size, self.byte)
        if len(head) < _FRAME.size:
            return None
        magic, size, crc = _FRAME.unpack(head)
        if magic != _FRAME_MAGIC or not _LENGTH.size <= size <= MAX_BYTES:
            return None
        body = os.pread(self.file, size, self.byte + _FRAME.size)
        if len(body) < size or _crc(self.offset, body) != crc:
            return None
        (length,) = _LENGTH.unpack_from(body)
        attributes = json.loads(body[_LENGTH.size : _LENGTH.size + length])
        record = Record(body[_LENGTH.size + length :], attributes)
        self.byte += _FRAME.size + size
        self.offset += 1
        return record

    def is_whole(self) -> bool:
        """Returns whether the record at `offset` is complete and undamaged; does not advance."""
        return SegmentReader(self.file, self._path, self.offset, self.byte).next() is not None

    def ends_here(self) -> bool:
        """Returns whether the rest of the file is empty or one torn record.

        If a complete record follows, the record here was not torn by a killed writer but damaged
        later.
        """
        rest = os.pread(self.file, os.fstat(self.file).st_size, self.byte)
        start, skipped = rest.find(_FRAME_MAGIC, 1), 0
        while start > 0:
            skipped += 1  # maximum number of records before `start`
            for offset in range(self.offset + 1, self.offset + skipped + 1):
                if SegmentReader(self.file, self._path, offset, self.byte + start).next():
                    return False
            start = rest.find(_FRAME_MAGIC, start + 1)
        return True


def _crc(offset: int, body: bytes) -> int:
    return native.crc32c(body, native.crc32c(_OFFSET.pack(offset)))
