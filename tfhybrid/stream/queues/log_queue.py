"""A queue in a directory: append-only files that need no broker."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from tfhybrid._deprecated import renamed_arguments
from tfhybrid.core.whole_file import sync, unfinished_of, write_at, write_whole
from tfhybrid.errors import (
    ConfigError,
    CorruptFileError,
    NameTakenError,
    OutOfSpaceError,
    PositionLostError,
    StreamError,
)
from tfhybrid.stream.queues import log_segment
from tfhybrid.stream.queues.log_segment import SegmentReader
from tfhybrid.stream.queues.queue import (
    Queue,
    Record,
    Slice,
    StoredRecord,
)

_log = logging.getLogger("tfhybrid.stream")

_CURSORS = 64  # number of recent read positions kept, to resume reading without a scan
_LOOK_SECONDS = 0.01


class LogQueue(Queue):
    """A queue in a directory on a local disk. Not thread-safe.

    The writing process holds a lock, and cuts off a torn record that a killed writer left. In that
    process, `read` returns a record after its `append` has succeeded. Other processes may read a
    record while `append` still writes it to disk.

    Args:
        folder: Path of the directory. A writer creates it.
        write: Whether this process appends. Default `False`.
        fsync: Time at which records reach the disk: `"always"`, before `append` returns, or
            `"never"`, when the kernel writes them. With both, records survive `kill -9` of the
            writer; only with `"always"`, they survive a power cut.
        segment_bytes: Size in bytes at which a file is closed and the next one started. Default
            64 MiB.
        retention_bytes: Number of newest bytes that are kept. Older files are removed when the
            next file is started. Default unlimited.
        retention_seconds: Age in seconds, relative to the newest record, above which files are
            removed when the next file is started. Default unlimited.

    Raises:
        ConfigError: `fsync` has another value.
        NameTakenError: This process shall write, and another one writes the queue.
        StreamError: The directory does not exist, and this process does not write.
        CorruptFileError: This process shall write, and the newest file is damaged.
        OSError: The directory cannot be written.

    Example:

    >>> import tempfile
    >>> queue = LogQueue(tempfile.mkdtemp(), write=True)
    >>> queue.append([Record(b'{"item": 7}')])
    1
    >>> queue.read(0).records[0].record.payload
    b'{"item": 7}'
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        write: bool = False,
        fsync: str = "always",
        segment_bytes: int = 64 << 20,
        retention_bytes: int | None = None,
        retention_seconds: float | None = None,
    ) -> None:
        if fsync not in ("always", "never"):
            raise ConfigError(f"fsync must be 'always' or 'never'. Received: {fsync!r}")
        self._folder = Path(folder)
        self._fsync = fsync == "always"
        self._segment_bytes = segment_bytes
        self._retention_bytes = retention_bytes
        self._retention_seconds = retention_seconds
        self._files: dict[int, int] = {}  # descriptor by first offset of the segment
        self._cursors: collections.OrderedDict[int, tuple[int, int]] = collections.OrderedDict()
        self._lock: int | None = None
        self._tail: SegmentReader | None = None  # at the end of the queue, if this process writes
        self._rest = False  # whether a part of a failed write may be behind the end
        if write:
            self._begin_writing()
        elif not self._folder.is_dir():
            raise StreamError(
                f"There is no queue in {self._folder}. Start its writer first, which creates it"
            )

    @property
    @override
    def name(self) -> str:
        return str(self._folder)

    @override
    def append(self, records: Sequence[Record]) -> int:
        tail = self._writing()
        if tail.byte >= self._segment_bytes:  # the last call could not begin the next segment
            with self._all_or_none():
                tail = self._begin_segment(tail.offset)
        frames = [log_segment.frame(tail.offset + i, record) for i, record in enumerate(records)]
        too_long = max(map(len, frames), default=0)
        if too_long > log_segment.MAX_BYTES:
            raise StreamError(
                f"A record must not exceed {log_segment.MAX_BYTES} bytes. Received: {too_long}"
            )
        with self._all_or_none():
            if self._rest:
                self._cut_rest(tail)
            try:
                write_at(tail.file, b"".join(frames), tail.byte)
                if self._fsync:
                    os.fdatasync(tail.file)
            except OSError:
                self._rest = True
                with contextlib.suppress(OSError):  # else the next call does it
                    self._cut_rest(tail)
                raise
        tail.offset += len(frames)
        tail.byte += sum(map(len, frames))
        if tail.byte >= self._segment_bytes:
            try:
                self._begin_segment(tail.offset)
                self._forget_old()
            except OSError as error:  # the records are stored: the next call tries again
                _log.warning("%s: the next file could not be started: %s", self.name, error)
        return tail.offset

    @override
    @renamed_arguments(most="max_records")
    def read(self, offset: int, *, max_records: int = 1000, wait_seconds: float = 0.0) -> Slice:
        until = time.monotonic() + wait_seconds
        while True:
            records = self._read_now(offset, max_records)
            if records or time.monotonic() >= until:
                return Slice(tuple(records), offset + len(records))
            time.sleep(_LOOK_SECONDS)

    @override
    def begin(self) -> int:
        return (self._segments() or [0])[0]

    @override
    def end(self) -> int:
        if self._tail is not None:
            return self._tail.offset
        segments = self._segments()
        if not segments:
            return 0
        reader = self._scanned(segments[-1])
        self._check_torn(segments[-1], reader, None)
        return reader.offset

    def forget_before(self, offset: int) -> None:
        """Removes the files whose records all lie before an offset, but never the newest one.

        Only the writer may call it.

        Args:
            offset: Offset of the first record to keep.

        Raises:
            StreamError: The queue is open for reading only.
            OSError: A file cannot be removed.
        """
        self._writing()
        segments = self._segments()
        for first, following in itertools.pairwise(segments):
            if following <= offset:
                log_segment.path_of(self._folder, first).unlink()

    @override
    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        self._tail = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _read_now(self, offset: int, max_records: int) -> list[StoredRecord]:
        segments = self._segments()
        self._check_kept(offset, segments)
        records: list[StoredRecord] = []
        for first, following in zip(segments, [*segments[1:], None], strict=True):
            if following is not None and following <= offset + len(records):
                continue
            reader = self._reader_at(first, offset + len(records))
            while len(records) < max_records and not self._at_end(reader):
                record = reader.next()
                if record is None:
                    self._check_torn(first, reader, following)
                    break
                records.append(StoredRecord(reader.offset - 1, record))
            self._remember(first, reader)
            if len(records) == max_records:
                break
        return records

    def _check_kept(self, offset: int, segments: list[int]) -> None:
        begin = segments[0] if segments else 0
        if offset < begin:
            raise PositionLostError(
                f"Queue {self.name} cannot be read from offset {offset}: retention has removed "
                f"the records before {begin}. Keep records for longer, or skip the lost ones"
            )
        if self._tail is not None and offset > self._tail.offset:
            raise PositionLostError(
                f"Queue {self.name} cannot be read from offset {offset}: it ends at "
                f"{self._tail.offset}. Records that were read before have been lost"
            )

    def _at_end(self, reader: SegmentReader) -> bool:
        return self._tail is not None and reader.offset >= self._tail.offset

    def _check_torn(self, first: int, reader: SegmentReader, following: int | None) -> None:
        """Checks that a segment ends where it should, or in a record that is still being written.

        Args:
            first: First offset of the segment.
            reader: Reader that found no further record.
            following: First offset of the next segment; `None` for the last segment.

        Raises:
            CorruptFileError: The segment is damaged there.
        """
        if following is not None:
            ends = reader.offset == following
        else:
            ends = self._at_end(reader) if self._tail is not None else reader.ends_here()
        if not ends and not reader.is_whole():  # else its writer has just finished it
            raise CorruptFileError(
                f"{log_segment.path_of(self._folder, first)} is damaged at byte {reader.byte}, "
                f"where record {reader.offset} was expected"
            )

    def _reader_at(self, first: int, offset: int) -> SegmentReader:
        cursor = self._cursors.get(offset)
        reader = self._reader(first)
        if cursor is not None and cursor[0] == first:
            reader.offset, reader.byte = offset, cursor[1]
        while reader.offset < offset:
            if reader.next() is None:
                self._check_torn(first, reader, None)
                raise PositionLostError(
                    f"Queue {self.name} cannot be read from offset {offset}: it ends at "
                    f"{reader.offset}. Records that were read before have been lost"
                )
        return reader

    def _remember(self, first: int, reader: SegmentReader) -> None:
        self._cursors[reader.offset] = first, reader.byte
        self._cursors.move_to_end(reader.offset)
        if len(self._cursors) > _CURSORS:
            self._cursors.popitem(last=False)

    def _reader(self, first: int) -> SegmentReader:
        path = log_segment.path_of(self._folder, first)
        if first not in self._files:
            try:
                self._files[first] = os.open(path, os.O_RDWR if self._lock else os.O_RDONLY)
            except FileNotFoundError:
                raise PositionLostError(
                    f"Queue {self.name} no longer has {path.name}: retention has removed it. "
                    "Keep records for longer, or skip the lost ones"
                ) from None
        file = self._files[first]
        log_segment.check_header(path, os.pread(file, log_segment.HEADER_BYTES, 0))
        return SegmentReader(file, path, first, log_segment.HEADER_BYTES)

    def _scanned(self, first: int) -> SegmentReader:
        reader = self._reader(first)
        while reader.next() is not None:
            pass
        return reader

    def _segments(self) -> list[int]:
        segments = log_segment.firsts_in(self._folder)
        for gone in self._files.keys() - set(segments):
            os.close(self._files.pop(gone))
        return segments

    def _begin_writing(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self._folder)
        for unfinished in self._folder.glob(unfinished_of(Path("*")).name):
            unfinished.unlink()
        segments = self._segments()
        if not segments:
            self._begin_segment(0)
            return
        tail = self._scanned(segments[-1])
        torn = os.fstat(self._files[segments[-1]]).st_size - tail.byte
        if torn:
            self._cut(segments[-1], tail, torn)
        self._tail = tail

    def _cut(self, first: int, tail: SegmentReader, torn: int) -> None:
        self._check_torn(first, tail, None)
        _log.warning(
            "%s: cut off the last %d bytes, a record that its writer did not finish",
            log_segment.path_of(self._folder, first),
            torn,
        )
        os.ftruncate(self._files[first], tail.byte)
        os.fsync(self._files[first])

    def _cut_rest(self, tail: SegmentReader) -> None:
        os.ftruncate(tail.file, tail.byte)
        self._rest = False

    def _begin_segment(self, first: int) -> SegmentReader:
        """Creates a segment, and returns its end. Its file appears with a complete header."""
        path = log_segment.path_of(self._folder, first)
        if path.exists():  # an earlier call failed after it had created the file
            sync(path.parent)
        else:
            write_whole(path, log_segment.header(first))
        self._tail = self._reader(first)
        return self._tail

    def _forget_old(self) -> None:
        segments = self._segments()
        stats = [log_segment.path_of(self._folder, first).stat() for first in segments]
        for i, first in enumerate(segments[:-1]):
            kept = sum(each.st_size for each in stats[i + 1 :])
            too_many = self._retention_bytes is not None and kept >= self._retention_bytes
            age = stats[-1].st_mtime - stats[i].st_mtime
            too_old = self._retention_seconds is not None and age > self._retention_seconds
            if not too_many and not too_old:
                return
            log_segment.path_of(self._folder, first).unlink()

    @contextlib.contextmanager
    def _all_or_none(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutOfSpaceError(
                f"Cannot write records to the queue {self.name}: {error}. None was written. Free "
                "disk space, then append them again"
            ) from error

    def _writing(self) -> SegmentReader:
        if self._tail is None:
            raise StreamError(
                f"Queue {self.name} is open for reading only. Open it with write=True to append"
            )
        return self._tail


def cut(folder: Path, offset: int, prepare: Callable[[], None]) -> Path:
    """Takes the records from an offset on out of a queue, also if some of them are damaged.

    The files that had them are kept in a folder of the queue, whose name begins with `cut-`. The
    queue then ends before the offset. No process may write the queue.

    Args:
        folder: Folder of the queue.
        offset: Offset of the first record to take out.
        prepare: Function that is called before anything changes, once the cut is known to be
            possible. Its errors propagate.

    Returns:
        The folder with the files.

    Raises:
        PositionLostError: The queue has no record at the offset, or one before it is damaged.
        NameTakenError: Another process writes the queue.
        OSError: A file cannot be read, copied or moved.
    """
    lock = _locked(folder)
    try:
        firsts = log_segment.firsts_in(folder)
        begun = [first for first in firsts if first <= offset]
        if not begun:
            raise PositionLostError(
                f"The queue {folder} can be cut at the offsets from {firsts[:1]}. "
                f"Received: {offset}"
            )
        byte = _byte_of(folder, begun[-1], offset)
        prepare()
        removed = folder / f"cut-{offset}-{time.time_ns()}"
        removed.mkdir()
        paths = [log_segment.path_of(folder, first) for first in firsts[len(begun) - 1 :]]
        _take_out(paths, byte, removed)
        sync(folder)
        return removed
    finally:
        os.close(lock)


def _take_out(paths: Sequence[Path], byte: int, removed: Path) -> None:
    """Moves segments to a folder; the first of them stays, up to a byte, and is copied."""
    for path in reversed(paths[1:]):  # the last first: a crash leaves a whole queue
        path.rename(removed / path.name)
    shutil.copyfile(paths[0], removed / paths[0].name)
    sync(removed / paths[0].name)
    _shorten(paths[0], byte)


def _shorten(path: Path, byte: int) -> None:
    """Cuts a segment off at a byte, and writes its header again, which may be damaged."""
    file = os.open(path, os.O_RDWR)
    try:
        os.ftruncate(file, byte)
        write_at(file, log_segment.header(log_segment.first_of(path)), 0)
        os.fsync(file)
    finally:
        os.close(file)


def _byte_of(folder: Path, first: int, offset: int) -> int:
    """Returns the byte at which a record begins in the segment that has it."""
    path = log_segment.path_of(folder, first)
    file = os.open(path, os.O_RDONLY)
    try:
        reader = SegmentReader(file, path, first, log_segment.HEADER_BYTES)
        while reader.offset < offset and reader.next() is not None:
            pass
        if reader.offset < offset or os.fstat(file).st_size <= reader.byte:
            raise PositionLostError(
                f"The queue {folder} can be cut only at a record behind whole ones. Received: "
                f"{offset}; there are whole records until {reader.offset}"
            )
        return reader.byte
    finally:
        os.close(file)


def _locked(folder: Path) -> int:
    """Returns a descriptor that holds the lock of a queue's writer until it is closed."""
    lock = os.open(folder / "writer.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise NameTakenError(
            f"Another process writes the queue {folder}. Stop it, or open the queue for reading "
            "only"
        ) from None
    return lock
