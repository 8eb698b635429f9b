"""Batches from files: read window by window, sharded by rank, shuffled by seed, resumable."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
from typing_extensions import override

from tfhybrid.data.bad_rows import BadRows, RowAccount, Rows
from tfhybrid.data.file_names import files_of
from tfhybrid.data.formats.agreed_types import AgreedTypes
from tfhybrid.data.formats.epoch_rows import (
    EpochRows,
    RowsLeft,
    Sequenced,
    order_of_part,
    steps_per_window,
)
from tfhybrid.data.formats.format import Format, Unit
from tfhybrid.data.resumable import ResumableBatches
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.origin import Cut, Origin, describe_files, digest_of_files
from tfhybrid.data.samples.sharding import Shard, Steps
from tfhybrid.errors import ConfigError, DataError

WINDOW = 1 << 20
_SCANNERS = 8
_MAX_READERS = 4


class FileBatches(ResumableBatches):
    r"""Batches of one rank, from files that need not fit in memory.

    An epoch puts the files' units (runs of lines, row groups, runs of records) in an order that
    depends only on (seed, epoch), and cuts their samples into windows. Each rank reads a contiguous
    part of a window, shuffles it and cuts it into batches, while it reads its part of the next
    window. So a rank holds `2 * window / size` samples. No sample is lost or repeated, and all
    ranks have the same number of steps.

    To resume, only the window of the position is read again, also with another batch size, window
    or number of ranks (see `at`). Then each rank also reads the parts of that window that its first
    samples come from.

    Args:
        file_format: Format of the files, such as `Parquet(["user", "item"])`.
        files: Path, pattern such as `"day_*/*.parquet"`, or several of them. All ranks must see the
            same files, whose samples are counted when the object is created.
        batch_size: Samples per rank and step, at least 1.
        seed: Seed of the shuffle, not negative, the same on every rank.
        shuffle: Whether to shuffle; otherwise units keep the order of the sorted names. Default
            true.
        window: Number of samples, over all ranks, that are shuffled together. Units much larger
            than `window / size` are read several times. Default 2^20, at least 1.
        drop_remainder: Whether to drop an incomplete last batch; the dataset's batch dimension is
            then static. Default false.
        shard: Number of this rank, and number of ranks. Defaults to this Horovod rank.
        bad_rows: Treatment of rows with a malformed value: `"raise"` (default) ends training with a
            `DataError`; `"skip"` leaves them out. Positions, windows and steps count them all the
            same: a batch with bad rows is shorter, and one without good rows is empty.
        max_bad_rows: Maximum number of bad rows that this rank may skip in an epoch. Default: no
            maximum.
        bad_rows_file: File to which a line of JSON is appended for each skipped row, with `path`,
            `row` (from 0), `column` and `reason`; each row once per rank and run. The ranks of a
            host may share it. Default: none.

    Raises:
        ConfigError: `batch_size`, `seed` or `window` is out of range, there is no batch for every
            rank, or `bad_rows="skip"` is combined with `drop_remainder`.
        DataError: There are no such files or no samples in them, a file is damaged, or a column has
            different types in two files.
        OSError: A file cannot be read.

    Example:

    >>> import pathlib, tempfile
    >>> from tfhybrid.data import Csv, FileBatches, Shard
    >>> path = pathlib.Path(tempfile.mkdtemp(), "day_0.csv")
    >>> _ = path.write_text("label,user\n" + "".join(f"0,{i}\n" for i in range(10)))
    >>> batches = FileBatches(
    ...     Csv(["user"]), path, 2, seed=1, shuffle=False, shard=Shard(rank=1, size=2)
    ... )
    >>> [users["user"][:, 0].numpy().tolist() for users, _ in batches.dataset()]
    [[5, 6], [7, 8], [9]]
    """

    def __init__(
        self,
        file_format: Format,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        batch_size: int,
        *,
        seed: int,
        shuffle: bool = True,
        window: int = WINDOW,
        drop_remainder: bool = False,
        shard: Shard | None = None,
        bad_rows: Literal["raise", "skip"] = "raise",
        max_bad_rows: int | None = None,
        bad_rows_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._bad_rows = BadRows(bad_rows, max_bad_rows, bad_rows_file)
        if self._bad_rows.skips and drop_remainder:
            raise ConfigError(
                "bad_rows='skip' makes some batches shorter, which drop_remainder=True excludes."
            )
        self._format = file_format.agreeing(AgreedTypes())
        self._shuffle = shuffle
        self._units = _units(self._format, files)
        rows = sum(unit.rows for unit in self._units)
        super().__init__(rows, batch_size, seed, drop_remainder, shard)
        if window < 1:
            raise ConfigError(f"window must be at least 1. Received: {window}.")
        self._window = window
        self._steps_per_window = steps_per_window(window, batch_size * self._shard.size)

    @property
    def steps_per_window(self) -> int:
        """Number of batches that are shuffled together; the last window may have more or fewer."""
        return self._steps_per_window

    @property
    def account(self) -> RowAccount | None:
        """Rows of this rank in the last epoch that was read to its end; `None` before."""
        return self._bad_rows.account

    @override
    def _epoch(self, epoch: int, before: Sequence[Cut], step: int) -> Iterator[Clicks]:
        key = [self._seed, epoch] if self._shuffle else []
        read = functools.partial(self._bad_rows.read, self._format)
        rows: Sequenced = EpochRows(self._ordered(epoch), read)
        total = len(rows)
        for cut in before:
            rows = RowsLeft(rows, cut, key, Rows.concatenate)
        steps = dataclasses.replace(self._steps, samples=len(rows))
        windows = Steps(len(rows), steps.batch_size * self._steps_per_window, steps.size)
        self._bad_rows.begin()
        first = min(step // self._steps_per_window, windows.count - 1)
        in_window = step - first * self._steps_per_window
        readers = min(_MAX_READERS, len(os.sched_getaffinity(0)))
        with (
            ThreadPoolExecutor(readers, "tfhybrid-reader") as pool,
            ThreadPoolExecutor(1, "tfhybrid-window") as reader,
        ):

            def submit(window: int) -> Future[Rows]:
                return reader.submit(self._read_window, rows, windows.bounds(window), key, pool)

            following = submit(first)
            for window in range(first, windows.count):
                current = following
                if window + 1 < windows.count:
                    following = submit(window + 1)
                last = window == windows.count - 1
                begin, end = windows.bounds(window)
                yield from self._batches_of(end - begin, last, current.result(), in_window)
                in_window = 0
        begun = self._shard.part(0, total - len(rows))  # of what runs with other steps have used
        count, done = self._rows_of_rank(steps, steps.count), self._rows_of_rank(steps, step)
        used = begun.stop - begun.start
        self._bad_rows.end(epoch, used + count, used + done)

    def _rows_of_rank(self, steps: Steps, count: int) -> int:
        """Returns the number of rows, good and bad, in this rank's part of the first steps."""
        full = max(min(count, steps.count - 1), 0)
        last = self._shard.part(*steps.bounds(full)) if count > full else slice(0, 0)
        return full * steps.batch_size + last.stop - last.start

    def _batches_of(self, samples: int, last: bool, part: Rows, step: int) -> Iterator[Clicks]:
        """Yields the batches of this rank's part of a window, from a step of the window on."""
        steps = Steps(
            samples,
            self._steps.batch_size,
            self._shard.size,
            self._steps.drop_remainder and last,
        )
        for index in range(step, steps.count):
            of_rank = self._shard.part(*steps.bounds(index))
            row = index * self._steps.batch_size
            batch = part.take(slice(row, row + of_rank.stop - of_rank.start))
            yield self._bad_rows.good(batch)

    def _read_window(
        self, rows: Sequenced, bounds: tuple[int, int], key: list[int], pool: ThreadPoolExecutor
    ) -> Rows:
        """Returns this rank's part of a window, shuffled if `key` is not empty."""
        own = self._shard.part(*bounds)
        part = Rows.concatenate([*rows.read(own.start, own.stop, pool)])
        if not key:
            return part
        return part.take(order_of_part([*key, own.start], len(part.clicks)))

    @override
    def _described(self) -> Origin:
        files = describe_files([*dict.fromkeys(unit.path for unit in self._units)])
        return Origin(
            batch_size=self._steps.batch_size,
            ranks=self._shard.size,
            window=self._window,
            seed=self._seed,
            shuffle=self._shuffle,
            drop_remainder=self._steps.drop_remainder,
            samples=self._steps.samples,
            digest=digest_of_files(files),
            files=files,
        )

    def _ordered(self, epoch: int) -> list[Unit]:
        if not self._shuffle:
            return self._units
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._units))
        return [self._units[i] for i in order]

    @override
    def _example(self) -> Clicks:
        return self._head().take([])

    @override
    def _head(self) -> Clicks:
        return self._first_rows

    @functools.cached_property
    def _first_rows(self) -> Clicks:
        unit = self._units[0]
        head = self._format.rows(unit).clicks if self._bad_rows.skips else self._format.head(unit)
        return head.take(slice(0, self._steps.batch_size))


def _units(
    file_format: Format, files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
) -> list[Unit]:
    """Returns the units of all files, without those that have no samples."""
    paths = files_of(files)
    with ThreadPoolExecutor(_SCANNERS) as scanners:
        units = [unit for cut in scanners.map(file_format.scan, paths) for unit in cut if unit.rows]
    file_format.compare_scanned()
    if not units:
        raise DataError(f"Expected samples in {files}. Received: {len(paths)} files without any.")
    return units
