"""A reader of a queue's rows between two positions, which puts bad rows aside."""

from __future__ import annotations

import collections
import dataclasses
import logging

import pyarrow as pa

from tfhybrid.errors import ConfigError, PositionLostError
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters, letters_of
from tfhybrid.stream.queues.decoded_rows import DecodedRows
from tfhybrid.stream.queues.queue import Queue, QueuePosition
from tfhybrid.stream.queues.row_columns import RowColumns

_log = logging.getLogger("tfhybrid.stream")

_RECORDS_AT_ONCE = 64
_CACHED_RECORDS = 256  # decoded records kept, because one record can belong to several leases


@dataclasses.dataclass(frozen=True)
class Taken:
    """Result of `QueueReader.take`: the rows that follow a position.

    Args:
        end: Position after the last row read, good or bad.
        batch: Good rows, with the declared columns.
    """

    end: QueuePosition
    batch: pa.RecordBatch


class QueueReader:
    """A reader of a queue's rows, independent of how the rows are grouped into records.

    Not thread-safe. The caller closes the queue.

    Args:
        queue: Queue to read.
        columns: Columns of a row.
        letters: File for bad rows; `None` if another process reports them.
        on_lost: Behavior if retention has removed the rows to read: `"raise"`, or `"skip"` to
            read from the oldest record that is kept. Default `"raise"`.

    Raises:
        ConfigError: `on_lost` has another value.
    """

    def __init__(
        self,
        queue: Queue,
        columns: RowColumns,
        letters: DeadLetters | None,
        *,
        on_lost: str = "raise",
    ) -> None:
        if on_lost not in ("raise", "skip"):
            raise ConfigError(f"on_lost must be 'raise' or 'skip'. Received: {on_lost!r}")
        self._queue = queue
        self._columns = columns
        self._letters = letters
        self._skips = on_lost == "skip"
        # By the offset requested: the offset of the record found there or after it, and its rows.
        self._cache: collections.OrderedDict[int, tuple[int, DecodedRows]] = (
            collections.OrderedDict()
        )
        self._unused = (0, 0)  # offsets, from the first to before the second, without a record

    def take(
        self, begin: QueuePosition, max_rows: int, limit: QueuePosition | None = None
    ) -> Taken | None:
        """Reads rows from a position on. Does not wait for new ones.

        Args:
            begin: Position of the first row.
            max_rows: Maximum number of good rows.
            limit: Position at which to stop. Default: the end of the queue.

        Returns:
            The rows, and the position after them. There are fewer than `max_rows` if the queue has
            no more before `limit`, and none if all are bad. `None` if nothing follows `begin`
            before `limit` yet.

        Raises:
            PositionLostError: Retention has removed the rows, and `on_lost` is `"raise"`; or the
                queue ends before `begin`.
            DataError: There are more bad rows than `letters` allows.
            StreamError: The queue cannot be reached.
            CorruptFileError: A record is damaged.
        """
        position, count = begin, 0
        parts: list[pa.RecordBatch] = []
        while count < max_rows and (limit is None or position < limit):
            entry = self._record_at(position)
            if entry is None:
                break
            offset, record = entry
            first = position.row if offset == position.offset else 0
            if limit is not None and limit <= (offset, first):
                position = limit
                break
            stop = limit.row if limit is not None and limit.offset == offset else record.count
            of_record, last = _rows_between(record, first, stop, max_rows - count)
            parts += of_record
            count += sum(part.num_rows for part in of_record)
            position = (
                QueuePosition(offset, last) if last < record.count else QueuePosition(offset + 1, 0)
            )
        if position == begin:
            return None
        return Taken(position, _joined(parts, self._columns.schema))

    def forget(self) -> None:
        """Reads records from the queue again, in case that some have vanished from it."""
        self._cache.clear()

    def _record_at(self, position: QueuePosition) -> tuple[int, DecodedRows] | None:
        """Returns the offset and rows of the first record at or after a position's offset."""
        if position.offset not in self._cache:
            self._read(position)
        return self._cache.get(position.offset)

    def _read(self, position: QueuePosition) -> None:
        requested = position.offset
        first, after = self._unused
        # A broker is asked for its offsets whenever it is read at another one than the last.
        offset = after if first <= requested < after else requested
        try:
            chunk = self._queue.read(offset, max_records=_RECORDS_AT_ONCE)
        except PositionLostError as error:
            begin = self._queue.begin()
            if not self._skips or begin < offset:
                raise
            _log.warning("%s. Skipping to offset %d", error, begin)
            chunk = self._queue.read(begin, max_records=_RECORDS_AT_ONCE)
        if not chunk.records:
            self._unused = requested, chunk.next_offset
        decoded = [(offset, rows.decode(record, self._columns)) for offset, record in chunk.records]
        if self._letters is not None:
            letters = [letter for at, each in decoded for letter in letters_of(at, each.bad)]
            self._letters.add_all(self._queue.name, letters)
        for offset, of_record in decoded:
            self._cache[requested] = offset, of_record
            requested = offset + 1
        while len(self._cache) > _CACHED_RECORDS:
            self._cache.popitem(last=False)


def _rows_between(
    record: DecodedRows, first: int, stop: int, max_rows: int
) -> tuple[list[pa.RecordBatch], int]:
    """Returns good rows of a record in parts, and the number after the last row read.

    Args:
        record: Rows of the record.
        first: Number of the first row.
        stop: Number after the last row.
        max_rows: Maximum number of good rows.
    """
    low, high = record.numbers.searchsorted([first, stop])
    taken = min(high - low, max_rows)
    last = stop if taken == high - low else int(record.numbers[low + taken - 1]) + 1
    return record.parts(int(low), int(taken)), last


def _joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    # A lease is large: Arrow's own pool would return its pages to the kernel each time.
    table = pa.Table.from_batches(parts, schema=schema).combine_chunks(pa.system_memory_pool())
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
