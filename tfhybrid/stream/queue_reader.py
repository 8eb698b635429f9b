"""Rows of a queue between two positions, with bad ones put aside."""

from __future__ import annotations

import collections
import dataclasses
import logging

import pyarrow as pa

from tfhybrid.errors import ConfigError, PositionLostError
from tfhybrid.stream import rows
from tfhybrid.stream.dead_letters import DeadLetters
from tfhybrid.stream.queue import Position, Queue
from tfhybrid.stream.rows import Rows

_log = logging.getLogger("tfhybrid.stream")

_RECORDS_AT_ONCE = 64
_CACHED_RECORDS = 256  # decoded, so that a record that several leases share is decoded once


@dataclasses.dataclass(frozen=True)
class Taken:
    """Rows that follow a position.

    Args:
        end: Behind the last of them, and behind bad rows among them.
        batch: The rows.
    """

    end: Position
    batch: pa.RecordBatch


class QueueReader:
    """Takes rows out of a queue, however they lie in records.

    Args:
        queue: From which.
        schema: The declared columns.
        letters: Where bad rows go; `None` leaves that to who has read them before.
        on_lost: What to do if the queue's retention has removed what was to be read: `"raise"`, or
            `"skip"` to go on with the oldest record that is kept.

    Raises:
        ConfigError: `on_lost` is something else.
    """

    def __init__(
        self,
        queue: Queue,
        schema: pa.Schema,
        letters: DeadLetters | None,
        *,
        on_lost: str = "raise",
    ) -> None:
        if on_lost not in ("raise", "skip"):
            raise ConfigError(f"on_lost is 'raise' or 'skip'. Received: {on_lost!r}")
        self._queue = queue
        self._schema = schema
        self._letters = letters
        self._skips = on_lost == "skip"
        # By where they were looked for: offset of the record, and its rows.
        self._cache: collections.OrderedDict[int, tuple[int, Rows]] = collections.OrderedDict()

    def take(self, begin: Position, most: int, limit: Position | None = None) -> Taken | None:
        """Takes rows from a position on.

        Args:
            begin: Of the first.
            most: How many.
            limit: Where to stop; by default at the end of the queue.

        Returns:
            The rows, fewer if there are no more; there may be none, if all are bad. `None` if there
            is nothing behind `begin` yet.

        Raises:
            PositionLostError: Retention has removed them, and they are not to be skipped.
            DataError: There are too many bad rows.
        """
        position, parts, count = begin, [], 0
        while count < most and (limit is None or position < limit):
            found = self._record_at(position)
            if found is None:
                break
            offset, record = found
            first = position.row if offset == position.offset else 0
            if limit is not None and limit <= (offset, first):
                position = limit
                break
            stop = limit.row if limit is not None and limit.offset == offset else record.count
            part, last = _rows_between(record, first, stop, most - count)
            parts.append(part)
            count += part.num_rows
            position = Position(offset, last) if last < record.count else Position(offset + 1, 0)
        if position == begin:
            return None
        return Taken(position, _joined(parts, self._schema))

    def _record_at(self, position: Position) -> tuple[int, Rows] | None:
        """Returns the first record at or behind a position's offset, and that offset."""
        if position.offset not in self._cache:
            self._read(position)
        return self._cache.get(position.offset)

    def _read(self, position: Position) -> None:
        wanted = position.offset
        try:
            found = self._queue.read(wanted, most=_RECORDS_AT_ONCE)
        except PositionLostError as error:
            begin = self._queue.begin()
            if not self._skips or begin < wanted:
                raise
            _log.warning("%s: skipped to offset %d", error, begin)
            found = self._queue.read(begin, most=_RECORDS_AT_ONCE)
        for offset, record in found.records:
            decoded = rows.decode(record, self._schema)
            if self._letters is not None:
                for row, reason in decoded.bad:
                    at = Position(offset, row)
                    self._letters.add(self._queue.name, at, reason, record.payload)
            self._cache[wanted] = offset, decoded
            wanted = offset + 1
        while len(self._cache) > _CACHED_RECORDS:
            self._cache.popitem(last=False)


def _rows_between(record: Rows, first: int, stop: int, most: int) -> tuple[pa.RecordBatch, int]:
    """Returns the good rows from one number to another, and the number behind the last one."""
    low, high = record.numbers.searchsorted([first, stop])
    taken = min(high - low, most)
    last = stop if taken == high - low else int(record.numbers[low + taken - 1]) + 1
    return record.batch.slice(low, taken), last


def _joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    # A lease is large: Arrow's own pool would have the kernel make its pages anew each time.
    table = pa.Table.from_batches(parts, schema=schema).combine_chunks(pa.system_memory_pool())
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
