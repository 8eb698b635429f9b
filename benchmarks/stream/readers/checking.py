"""Share of the check of values in the processor time of a reader, where all rows are good."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tfhybrid.data import FileBatches, Format, Shard
from tfhybrid.data.formats import arrow_columns, text_columns, tfrecord
from tfhybrid.stream.queues import checked_array, rows
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.values import QuickCheck, checking, spelling

# Calls that check values: of readers and streams, and of keys in a notation, whose parsing is not
# counted.
CHECKS = (
    *((module, "check") for module in (arrow_columns, text_columns, tfrecord, checked_array)),
    (QuickCheck, "doubtful"),
    (spelling, "apply"),
)
# Call within a check that makes NumPy's arrays of Arrow's, which a reader needs anyway.
CONVERSION = (checking, "rows_of")


def reading(format_: Format, path: Path, batch_size: int) -> Callable[[], None]:
    """Returns a function that reads a file of good rows in shuffled batches.

    Args:
        format_: Format of the file.
        path: The file.
        batch_size: Samples of a batch.
    """

    def read() -> None:
        batches = FileBatches(format_, path, batch_size, seed=1, shard=Shard(0, 1))
        for _ in batches.batches():
            pass

    return read


def decoding(record: Record, columns: RowColumns) -> Callable[[], None]:
    """Returns a function that decodes a record of good rows 100 times.

    Args:
        record: The record.
        columns: Columns of its rows.
    """

    def read() -> None:
        for _ in range(100):
            assert not rows.decode(record, columns).bad

    return read


def share_of_check(read: Callable[[], None], rounds: int = 3) -> float:
    """Returns the share of the check of values in a reader's processor time, 0 to 1: a median.

    Args:
        read: Function that reads good rows. Nothing else may run in the process.
        rounds: Number of calls after the first one, which is not counted. Default 3.
    """
    shares = []
    for _ in range(rounds + 1):
        checks: list[float] = []
        conversions: list[float] = []
        with _timed(checks, *CHECKS), _timed(conversions, CONVERSION):
            started = time.process_time()
            read()
            seconds = time.process_time() - started
        shares.append((sum(checks) - sum(conversions)) / seconds)
    return statistics.median(shares[1:])


@contextlib.contextmanager
def _timed(spent: list[float], *calls: tuple[Any, str]) -> Iterator[None]:
    """Appends the seconds of every call of some functions, by module and name, during the block."""
    plain = [getattr(module, name) for module, name in calls]
    try:
        for (module, name), function in zip(calls, plain, strict=True):
            setattr(module, name, _timing(function, spent))
        yield
    finally:
        for (module, name), function in zip(calls, plain, strict=True):
            setattr(module, name, function)


def _timing(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        started = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            spent.append(time.thread_time() - started)

    return timed
