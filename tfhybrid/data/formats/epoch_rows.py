"""The samples of an epoch of files in order, and what some runs have left of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from tfhybrid.data.formats.format import Unit
from tfhybrid.data.samples.origin import Cut
from tfhybrid.data.samples.sharding import Shard, Steps


class Sequenced(Protocol):
    """Samples in an order, of which ranges can be read."""

    def __len__(self) -> int:
        """Returns the number of samples."""

    def read(self, begin: int, end: int, pool: ThreadPoolExecutor) -> Iterator[Any]:
        """Yields the samples `[begin, end)` in order, in any number of parts with a method `take`.

        Args:
            begin: Number of the first sample.
            end: Number after the last one.
            pool: Threads that read the files.

        Raises:
            DataError: A file is damaged.
        """


class EpochRows:
    """All samples of an epoch: those of its units, one after the other.

    Args:
        units: Units in the order of the epoch.
        read: Function that returns the samples of a unit at some positions. Several threads call
            it.
    """

    def __init__(self, units: Sequence[Unit], read: Callable[[Unit, slice], Any]) -> None:
        self._units = units
        self._read = read

    def __len__(self) -> int:
        """Returns the number of samples."""
        return sum(unit.rows for unit in self._units)

    def read(self, begin: int, end: int, pool: ThreadPoolExecutor) -> Iterator[Any]:
        """Yields the samples `[begin, end)`; see `Sequenced`."""
        firsts = itertools.accumulate((unit.rows for unit in self._units), initial=0)
        parts = [
            (unit, slice(max(begin - first, 0), min(end - first, unit.rows)))
            for unit, first in zip(self._units, firsts, strict=False)
            if begin < first + unit.rows and first < end
        ]
        yield from pool.map(self._read, *zip(*parts, strict=True))


class RowsLeft:
    """The samples that a run has left: of the window that it broke off, then all later ones.

    Of a broken window, each rank of that run had shuffled its own part, and used the first samples
    of that.

    Args:
        rows: Samples that the run had before it.
        cut: Steps of the run, fewer than it needed for all samples.
        key: Seed and epoch of the shuffle; empty if the run did not shuffle.
        join: Function that makes one part of the parts that `rows` yield.
    """

    def __init__(
        self, rows: Sequenced, cut: Cut, key: Sequence[int], join: Callable[[Sequence[Any]], Any]
    ) -> None:
        per_window = steps_per_window(cut.window, cut.batch_size * cut.ranks)
        windows = Steps(len(rows), cut.batch_size * per_window, cut.ranks)
        window = min(cut.steps // per_window, windows.count - 1)
        begin, self._behind = windows.bounds(window)
        self._rows, self._key, self._join = rows, key, join
        self._parts = [
            Shard(rank, cut.ranks).part(begin, self._behind) for rank in range(cut.ranks)
        ]
        self._used = (cut.steps - window * per_window) * cut.batch_size

    def __len__(self) -> int:
        """Returns the number of samples."""
        return self._in_window + len(self._rows) - self._behind

    def read(self, begin: int, end: int, pool: ThreadPoolExecutor) -> Iterator[Any]:
        """Yields the samples `[begin, end)`; see `Sequenced`."""
        first = 0
        for part in self._parts:
            count = part.stop - part.start - self._used
            low, high = max(begin - first, 0), min(end - first, count)
            if low < high:
                whole = self._join([*self._rows.read(part.start, part.stop, pool)])
                key = [*self._key, part.start] if self._key else []
                order = order_of_part(key, part.stop - part.start)
                yield whole.take(order[self._used :][low:high])
            first += count
        if first < end:
            shift = self._behind - first
            yield from self._rows.read(max(begin, first) + shift, end + shift, pool)

    @property
    def _in_window(self) -> int:
        return sum(part.stop - part.start - self._used for part in self._parts)


def steps_per_window(window: int, global_batch: int) -> int:
    """Returns the number of steps whose samples are shuffled together.

    Args:
        window: Number of samples that are shuffled together.
        global_batch: Number of samples of a step, over all ranks.
    """
    return max(window // global_batch, 1)


def order_of_part(key: Sequence[int], count: int) -> np.ndarray:
    """Returns the order in which a rank uses the samples of its part of a window.

    Args:
        key: Seed, epoch and first sample of the part; empty for the order of the files.
        count: Number of samples.
    """
    if not key:
        return np.arange(count)
    return np.random.default_rng(key).permutation(count)
