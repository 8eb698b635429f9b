"""Records of TFRecord files: where units begin, and their bytes."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import struct
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import tensorflow as tf

from tfhybrid.data.formats.file_kinds import kind_of
from tfhybrid.data.formats.format import Unit
from tfhybrid.errors import DataError

_LENGTH = struct.Struct("<Q")
_BEFORE, _OVERHEAD = 12, 16  # bytes of a record before its data, and in addition to its data
_PIECE = 1 << 16
_MAX_HEAD = 1 << 24
_PACKED = 1 << 18  # bytes of a compressed file that are read at a time
_MAX_OUTPUT = 1 << 22
_WINDOW_BITS = {".gz": 31, ".zlib": 15}  # arguments of `zlib.decompressobj`


def units_of(path: Path, unit_records: int, first: list[bytes] | None = None) -> list[Unit]:
    """Cuts a file into runs of records. Reads only the lengths of records, if uncompressed.

    Args:
        path: Path of the file.
        unit_records: Number of records in a unit.
        first: List to which the first record is added, if there is one. Default: none.

    Raises:
        DataError: The file ends within a record, or a compressed file is damaged or cut off.
        OSError: The file cannot be read.
    """
    first = [] if first is None else first
    if path.suffix in _WINDOW_BITS:
        begins, count = _begins_inside(path, unit_records)
        first += first_records(path, 1)
    else:
        begins, count = _begins(path, unit_records, first)
    firsts = range(0, max(count, 1), unit_records)
    return [
        Unit(path, begin, end, first, min(unit_records, count - first))
        for (begin, end), first in zip(itertools.pairwise(begins), firsts, strict=True)
    ]


def first_records(path: Path, count: int) -> list[bytes]:
    """Returns the first records of a file, or fewer if they are large. Checks no checksum.

    Args:
        path: Path of the file.
        count: Number of records.

    Raises:
        DataError: A compressed file is damaged.
        OSError: The file cannot be read.
    """
    records: list[bytes] = []
    held = b""
    with contextlib.closing(_pieces(path)) as pieces:
        for piece in pieces:
            held += piece
            position = 0
            while len(held) >= position + _LENGTH.size and len(records) < count:
                size = _LENGTH.unpack_from(held, position)[0]
                if position + _OVERHEAD + size > len(held):
                    break
                records.append(held[position + _BEFORE : position + _BEFORE + size])
                position += _OVERHEAD + size
            held = held[position:]
            if len(records) == count or len(held) > _MAX_HEAD:
                break
    return records


@contextlib.contextmanager
def copied(unit: Unit) -> Iterator[Path]:
    """Context whose value is a file in memory with the records of a unit, uncompressed.

    TensorFlow reads a file from its beginning, so everything before a unit would be read again for
    each unit.

    Raises:
        DataError: A compressed file is damaged or cut off.
        OSError: The file cannot be read.
    """
    copy = os.memfd_create("tfhybrid-records")
    try:
        if unit.path.suffix in _WINDOW_BITS:
            _copy_inflated(unit, copy)
        else:
            _copy(unit, copy)
        yield Path(f"/proc/self/fd/{copy}")
    finally:
        os.close(copy)


def dataset_of_records(path: Path) -> tf.data.TFRecordDataset:
    """Returns the records of an uncompressed file, whose checksums are checked."""
    return tf.data.TFRecordDataset(str(path), "", 1 << 20)


def _pieces(path: Path) -> Generator[bytes, None, None]:
    if path.suffix in _WINDOW_BITS:
        yield from inflated(path)
        return
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _copy(unit: Unit, copy: int) -> None:
    with unit.path.open("rb") as file:
        position = unit.begin
        while position < unit.end:
            sent = os.sendfile(copy, file.fileno(), position, unit.end - position)
            if sent == 0:
                break  # the file was truncated meanwhile: TensorFlow raises the error
            position += sent


def _copy_inflated(unit: Unit, copy: int) -> None:
    position = 0
    with contextlib.closing(inflated(unit.path)) as pieces:
        for piece in pieces:
            rest = memoryview(piece)[max(unit.begin - position, 0) : unit.end - position]
            while rest:
                rest = rest[os.write(copy, rest) :]
            position += len(piece)
            if position >= unit.end:
                break


def inflated(path: Path) -> Generator[bytes, None, None]:
    """Yields the content of a compressed file, of all its streams one after the other.

    Args:
        path: Path of the file; its suffix is .gz or .zlib.

    Raises:
        DataError: The file is empty, is damaged, does not end with the trailer of a stream, or has
            something else behind one.
        OSError: The file cannot be read.
    """
    streams = 0
    decoder = None
    try:
        with path.open("rb") as file:
            while piece := file.read(_PACKED):
                while piece:
                    if decoder is None:
                        decoder = zlib.decompressobj(_WINDOW_BITS[path.suffix])
                        streams += 1
                    yield decoder.decompress(piece, _MAX_OUTPUT)
                    piece = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                    decoder = None if decoder.eof else decoder
        while decoder is not None and (rest := decoder.decompress(b"", _MAX_OUTPUT)):
            yield rest
            decoder = None if decoder.eof else decoder
    except zlib.error as error:
        where = f"stream {streams}: " if streams > 1 else ""
        raise DataError(
            f"{path}: expected a whole compressed file. Received: {where}{error}"
        ) from error
    if decoder is not None or not streams:
        raise DataError(
            f"{path}: expected a whole compressed file. Received: one that "
            f"{'ends within a stream' if streams else 'is empty'}."
        )


def _begins(path: Path, unit_records: int, first: list[bytes]) -> tuple[list[int], int]:
    """Returns the byte at which each unit begins and the last one ends, and the number of records.

    Reads only the lengths of records, and the first record, which it adds to `first`.
    """
    size = path.stat().st_size
    begins, count, position = [], 0, 0
    if size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            while position <= size - _LENGTH.size:
                if count % unit_records == 0:
                    begins.append(position)
                position += _OVERHEAD + _LENGTH.unpack_from(data, position)[0]
                count += 1
            _check_end(path, size, position, count, data[:16])
            end = _BEFORE + _LENGTH.unpack_from(data)[0] if count else 0
            first += [data[_BEFORE:end]] if count else []
    return [*(begins or [0]), size], count


def _begins_inside(path: Path, unit_records: int) -> tuple[list[int], int]:
    """Returns what `_begins` does, for the content of a compressed file, of which it reads all."""
    begins: list[int] = []
    count = position = size = 0
    held = b""  # the content from `size - len(held)` on
    for piece in inflated(path):
        size += len(piece)
        held = held + piece if held else piece
        start = size - len(held)
        while position <= size - _LENGTH.size:
            if count % unit_records == 0:
                begins.append(position)
            position += _OVERHEAD + _LENGTH.unpack_from(held, position - start)[0]
            count += 1
        held = held[max(position - start, 0) :]
    _check_end(path, size, position, count, b"")
    return [*(begins or [0]), size], count


def _check_end(path: Path, size: int, position: int, count: int, beginning: bytes) -> None:
    if position != size:
        if kind := kind_of(beginning):
            raise DataError(f"{path}: expected whole records. Received: {kind}.")
        record = count - 1 if position > size else count
        raise DataError(
            f"{path}: expected whole records. Received: a file of {size} bytes that ends within "
            f"record {record}."
        )
