"""Batches from the files of a directory, in order, while new files keep arriving."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from tfhybrid._ending import close_at_end
from tfhybrid.data.formats.agreed_types import AgreedTypes
from tfhybrid.data.formats.format import Format
from tfhybrid.data.position import StreamPosition
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.data.samples.sample_elements import Element, dataset_of, element
from tfhybrid.data.samples.sharding import Shard, Steps
from tfhybrid.errors import ConfigError, DataError

END_MARKER = "_END"
"""The file that marks the end of the stream."""

_logger = logging.getLogger("tfhybrid.data.directory_stream")


class _Segment(NamedTuple):
    """A run of samples that are cut into batches together."""

    start: StreamPosition
    rows: int


class DirectoryStream:
    """Batches of one rank, from files that a producer publishes in a directory.

    The contract with the producer:

    - a file is published by its rename: write it under a name that does not match `pattern`, then
      rename it;
    - names are published in increasing order (a time or a counter with leading zeros);
    - a file named `_END`, made after the last file, ends the stream; without it readers wait.

    So ranks agree without communication: each reads the next name as soon as it sees it, and all of
    them read the same files in the same order, however late some of them look. For the same reason
    nothing ends by a timeout. Ranks on several hosts need a directory that all of them see.

    Within a file samples keep their order and are cut as in `Batches`: every rank has the same
    number of steps and no sample is lost. A file with fewer samples than ranks is concatenated with
    the next one. If it is the last file, its samples are left out, with a log message; a stream
    that starts at the reached position gets them again.

    One iteration at a time: `position` refers to the latest one.

    Args:
        directory: Directory in which files appear. It must exist.
        read: Function that reads a file, for example `Csv(["user", "item"]).read`. The types of
            columns of all files are compared, because the number 123 and the string "123" have
            different keys; with another function, only the kinds of columns that it returns are.
        batch_size: Samples per rank and step, at least 1.
        pattern: Pattern of the files' names. Default `"*.csv"`.
        poll_seconds: Time in seconds between two listings of the directory. Default 1.
        shard: Number of this rank, and number of ranks. Defaults to this Horovod rank.

    Raises:
        ConfigError: `directory` is not a directory, or `batch_size` is not positive.

    Example:

    ```python
    with DirectoryStream("clicks/", read, batch_size=4096) as stream:
        model.fit(stream.dataset())
    ```
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        read: Callable[[Path], Clicks],
        *,
        batch_size: int,
        pattern: str = "*.csv",
        poll_seconds: float = 1.0,
        shard: Shard | None = None,
    ) -> None:
        self._directory = Path(directory)
        self._read = _agreeing(read)
        self._columns: tuple[str, dict[str, str]] | None = None
        self._batch_size = batch_size
        self._pattern = pattern
        self._poll_seconds = poll_seconds
        self._shard = shard or Shard.of_this_process()
        self._closed = threading.Event()
        close_at_end(self)
        self._segments: dict[int, _Segment] = {}
        if not self._directory.is_dir():
            raise ConfigError(f"directory must exist. Received: {self._directory}.")
        self._steps(0)  # raises now if batch_size is wrong

    def __enter__(self) -> DirectoryStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream early: iterations stop waiting and end. Any thread may call it."""
        self._closed.set()

    def batches(self, start: StreamPosition | None = None) -> Iterator[Clicks]:
        """Yields this rank's batches as tables, and waits for files that are not there yet.

        The iteration ends with the stream (`_END`), or when `close` is called. Starting another one
        resets `position`.

        Args:
            start: Position to start from. Defaults to the first file of the directory.

        Raises:
            DataError: During the iteration: the producer violated the contract of the class, a file
                is malformed or has other columns than the first one, the file of `start` is
                missing, or the stream ended before the row of `start`.
            OSError: During the iteration: a file cannot be read.
        """
        return (batch for batch in self._poll(start) if batch is not None)

    def dataset(self, start: StreamPosition | None = None) -> tf.data.Dataset:
        """Returns the batches from a position on. Waits for the first file to know its columns.

        If `batches` would raise an error, the iteration ends with an error of TensorFlow that
        contains its message: `tf.errors.InvalidArgumentError` for a `DataError`,
        `tf.errors.UnknownError` for an `OSError`.

        Args:
            start: Position to start from. Defaults to the first file of the directory.

        Returns:
            Elements like those of `Batches.dataset`. The number of elements is not known.

        Raises:
            DataError: The stream ended or was closed before there was a file, or the first file is
                malformed.
            OSError: The first file cannot be read.
        """
        names = (name for name in self._names(None) if name is not None)
        if (first := next(names, None)) is None:
            raise DataError(f"Expected files {self._pattern}. Received: none in {self._directory}.")
        example = self._read(self._directory / first).take(slice(0, 0))
        self._check_columns(first, example)  # even if the file has no samples

        def elements() -> Iterator[Element]:
            return (element(example if batch is None else batch) for batch in self._poll(start))

        # TensorFlow cannot cancel a generator that blocks, so it yields an empty element whenever
        # the directory has nothing new.
        polled = dataset_of(elements, example)
        return polled.filter(lambda _, label: tf.shape(label)[0] > 0).prefetch(tf.data.AUTOTUNE)

    def position(self, steps: int) -> StreamPosition:
        """Returns the position after this many steps of the latest iteration.

        Raises:
            ConfigError: The iteration has not reached this step.
        """
        firsts = [first for first in sorted(self._segments) if first <= steps]
        if firsts:
            segment = self._segments[firsts[-1]]
            cuts = self._steps(segment.rows)
            taken = steps - firsts[-1]
            if taken <= cuts.count:
                row = cuts.bounds(taken - 1)[1] if taken else 0
                return StreamPosition(segment.start.file, segment.start.row + row)
        raise ConfigError(f"The stream has not reached this step. Received: step {steps}.")

    def _poll(self, start: StreamPosition | None) -> Iterator[Clicks | None]:
        """Yields batches, and `None` whenever the directory has nothing new."""
        self._segments = segments = {}
        steps_before = 0
        for item in self._segments_from(start):
            if item is None:
                yield None
                continue
            table, begin = item
            cuts = self._steps(len(table))
            segments[steps_before] = _Segment(begin, len(table))
            steps_before += cuts.count
            for step in range(cuts.count):
                if self._closed.is_set():
                    return
                yield table.take(self._shard.part(*cuts.bounds(step)))

    def _segments_from(
        self, start: StreamPosition | None
    ) -> Iterator[tuple[Clicks, StreamPosition] | None]:
        """Yields tables with at least one sample per rank, each with its position.

        Yields `None` whenever the directory has nothing new.
        """
        begin, waiting = start, None
        for name in self._names(start):
            if name is None:
                yield None
                continue
            table = self._read(self._directory / name)
            if len(table):  # columns of a file without samples may have no types
                self._check_columns(name, table)
                table = table if waiting is None else Clicks.concatenate([waiting, table])
            else:
                table = waiting or table
            begin = begin or StreamPosition(name)
            left = len(table) - begin.row
            if left >= self._shard.size:
                yield table.take(slice(begin.row, None)), begin
            enough = left == 0 or left >= self._shard.size
            begin, waiting = (None, None) if enough else (begin, table)
        if begin and waiting and not self._closed.is_set():
            self._leave(waiting, begin)

    def _check_columns(self, name: str, table: Clicks) -> None:
        """Checks that a file's samples have the columns of the first file's.

        Raises:
            DataError: A column is absent, is another one, or has another type or length.
        """
        columns = _columns_of(table)
        first, expected = self._columns or (name, columns)
        self._columns = first, expected
        if columns != expected:
            raise DataError(
                f"{self._directory / name}: expected {expected}, as in {first}. "
                f"Received: {columns}."
            )

    def _leave(self, waiting: Clicks, begin: StreamPosition) -> None:
        """Logs which samples are left out at the end of the stream.

        Raises:
            DataError: The stream was started at a row behind its end.
        """
        left = len(waiting) - begin.row
        if left < 0:
            raise DataError(
                "Expected a position within the stream. "
                f"Received: row {begin.row} from {begin.file} on, where {len(waiting)} samples "
                "follow."
            )
        if self._shard.rank == 0:
            _logger.warning(
                "The stream ended with %d samples left, too few for %d ranks; they follow %s.",
                left,
                self._shard.size,
                begin,
            )

    def _names(self, start: StreamPosition | None) -> Iterator[str | None]:
        """Yields each file's name once it exists, and `None` whenever there is no new one.

        Raises:
            DataError: The contract is violated, or the file of `start` is missing.
        """
        seen: set[str] = set()
        while not self._closed.is_set():
            # Looked for before the listing, which then contains the last file.
            ended = (self._directory / END_MARKER).exists()
            new = sorted(self._published(start) - seen)
            self._check_order(new, seen, start, ended)
            for name in new:
                seen.add(name)
                yield name
            if ended:
                return
            if not new:
                self._closed.wait(self._poll_seconds)
                yield None

    def _published(self, start: StreamPosition | None) -> set[str]:
        names = {path.name for path in self._directory.glob(self._pattern)} - {END_MARKER}
        return {name for name in names if start is None or name >= start.file}

    def _check_order(
        self, new: list[str], seen: set[str], start: StreamPosition | None, ended: bool
    ) -> None:
        if start and not seen and (new or ended) and new[:1] != [start.file]:
            raise DataError(
                f"Expected {start.file} in {self._directory}, where the stream should start. "
                f"Received: {new[0] if new else END_MARKER}."
            )
        if new and seen and new[0] < max(seen):
            raise DataError(
                f"Files of {self._directory} must be published in increasing order of name. "
                f"Received: {new[0]} after {max(seen)}."
            )

    def _steps(self, samples: int) -> Steps:
        return Steps(samples, self._batch_size, self._shard.size)


def _agreeing(read: Callable[[Path], Clicks]) -> Callable[[Path], Clicks]:
    """Returns a function that also compares the types of files, if a format reads them."""
    owner = getattr(read, "__self__", None)
    if not isinstance(owner, Format) or getattr(read, "__func__", None) is not Format.read:
        return read
    agreeing = owner.agreeing(AgreedTypes())

    def read_next(path: Path) -> Clicks:
        units = agreeing.scan(path)
        agreeing.compare_scanned()
        return Clicks.concatenate([agreeing.read_unit(unit) for unit in units])

    return read_next


def _columns_of(table: Clicks) -> dict[str, str]:
    """Returns the kind of each column: its dtype, and the number of values in a sample."""
    columns = {**table.features, **table.dense, **table.labels}
    return {
        name: "lists of int64"
        if isinstance(column, Ragged)
        else f"{column.dtype} {list(column.shape[1:])}"
        for name, column in columns.items()
    }
