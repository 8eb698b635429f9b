"""The label join: writes each impression once, labeled with whether a click followed in time."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from tfhybrid._deprecated import renamed_arguments
from tfhybrid.errors import ConfigError
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.queue import Queue, QueuePosition, Record
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.queues.row_columns import RowColumns

# Number of offsets searched first for the last record. Not every offset has a record.
_LAST_RECORDS = 64

_STATE = ("impression", "impression_row", "click", "click_row", "low", "low_row")


@dataclasses.dataclass(frozen=True)
class JoinColumns:
    """Names of the columns that a label join reads and writes.

    Args:
        id: Column, in both queues, with the id that a click shares with its impression.
        time: Column, in both queues, with the event time: an integer, in the window's unit.
        label: Column of the joined rows: float, 1 if a click followed and 0 otherwise.
    """

    id: str = "id"
    time: str = "time"
    label: str = "label"


class Join:
    """A label join: joins impressions and clicks into a queue of labeled rows. Not thread-safe.

    Impressions are processed in queue order. For each one, the join reads clicks until it finds a
    click later than the end of the impression's window plus `lateness`. It then writes the
    impression, with label 1 if a click with the same id lies in the window. The output therefore
    depends only on the contents of the two queues, not on when they are read, and a joined row is
    never corrected.

    The last record of the output contains the join's progress. After `kill -9` a new join resumes
    there, so each impression is written once.

    The join waits while no clicks arrive. If clicks can pause, their writer must send a row with a
    time and without an id from time to time.

    Args:
        impressions: Queue of impressions, with the columns of `schema`.
        clicks: Queue of clicks, with the columns id and time.
        joined: Queue for the labeled rows, open for writing. The join is its only writer; the
            caller closes it.
        schema: Columns of an impression, including id and time.
        window: Maximum time from an impression to a click that counts, in units of the time column.
        lateness: Maximum time by which a row may be older than an earlier one of its queue.
            Default 0.
        letters: File for bad rows.
        columns: Names of the columns. Default `JoinColumns()`.

    Raises:
        ConfigError: The schema lacks id or time, the type of time is not an integer, a type is not
            supported, or the window is negative.
        KeyError: The last record of `joined` was not written by a join.
        StreamError: A queue cannot be read; a `PositionLostError` if it no longer has the clicks
            that the join needs again.
    """

    def __init__(
        self,
        impressions: Queue,
        clicks: Queue,
        joined: Queue,
        schema: pa.Schema,
        *,
        window: int,
        letters: DeadLetters,
        lateness: int = 0,
        columns: JoinColumns | None = None,
    ) -> None:
        self._columns = columns or JoinColumns()
        names = self._columns
        if {names.id, names.time} - set(schema.names) or window < 0:
            raise ConfigError(
                f"A label join needs columns '{names.id}' and '{names.time}', and a window of at "
                f"least 0. Received: {schema.names}, window={window}"
            )
        time = schema.field(names.time).with_nullable(False)  # a row without a time is bad
        if not pa.types.is_integer(time.type):
            raise ConfigError(
                f"The times of a label join are integers. Received: '{time.name}' of type "
                f"{time.type}"
            )
        impression = schema.set(schema.get_field_index(names.time), time)
        click = pa.schema([schema.field(names.id).with_nullable(True), time])
        self._impressions = QueueReader(impressions, RowColumns.of(impression), letters)
        self._clicks = QueueReader(clicks, RowColumns.of(click), letters)
        self._joined = joined
        self._window = window
        self._lateness = lateness
        self._next = QueuePosition(impressions.begin(), 0)
        self._click = QueuePosition(clicks.begin(), 0)
        # Clicks that may still count: position, id and time.
        self._kept: collections.deque[tuple[QueuePosition, object, int]] = collections.deque()
        self._times: dict[object, list[int]] = {}
        self._latest_click: int | None = None
        self._latest_impression: int | None = None
        self._resume()

    @renamed_arguments(most="max_impressions")
    def run_once(self, *, max_impressions: int = 1000) -> int:
        """Writes the impressions that can be labeled now, as one record. Does not wait for rows.

        Args:
            max_impressions: Maximum number of impressions.

        Returns:
            Number of rows written; 0 if the next impression still waits for clicks, or there is
            none.

        Raises:
            PositionLostError: Retention has removed rows that the join has not read.
            DataError: There are too many bad rows.
            StreamError: A queue cannot be read, or the joined queue cannot be written.
            OutOfSpaceError: The disk of the joined queue is full; nothing was written.
            CorruptFileError: A record is damaged.
        """
        taken = self._impressions.take(self._next, max_impressions)
        if taken is None:
            return 0
        names = self._columns
        ids, times = (taken.batch[name].to_pylist() for name in (names.id, names.time))
        labels = []
        for each, time in zip(ids, times, strict=True):
            if not self._clicks_read_to(time + self._window):
                break
            clicked = self._times.get(each, ())
            labels.append(float(any(time <= at <= time + self._window for at in clicked)))
            self._latest_impression = _later(time, self._latest_impression)
            self._forget_clicks()
        if not labels:
            return 0
        batch = taken.batch.slice(0, len(labels))
        labelled = batch.append_column(names.label, pa.array(labels, pa.float32()))
        whole = taken if len(labels) == taken.batch.num_rows else None
        cut = whole or self._impressions.take(self._next, len(labels))
        assert cut is not None
        self._joined.append([rows.encode(labelled, **self._state(cut.end))])
        self._next = cut.end
        return len(labels)

    def _clicks_read_to(self, time: int) -> bool:
        """Reads clicks until one is later than `time` plus the lateness.

        Returns:
            Whether there was such a click.
        """
        while self._latest_click is None or self._latest_click - self._lateness <= time:
            taken = self._clicks.take(self._click, 1)
            if taken is None:
                return False
            self._keep(taken.batch, self._click)
            self._click = taken.end
        return True

    def _keep(self, batch: pa.RecordBatch, at: QueuePosition) -> None:
        names = self._columns
        for each, time in zip(
            batch[names.id].to_pylist(), batch[names.time].to_pylist(), strict=True
        ):
            self._latest_click = _later(time, self._latest_click)
            if each is not None:
                self._times.setdefault(each, []).append(time)
            self._kept.append((at, each, time))

    def _forget_clicks(self) -> None:
        """Forgets the clicks that are too early for every impression still to come."""
        assert self._latest_impression is not None
        while len(self._kept) > 1 and self._kept[0][2] < self._latest_impression - self._lateness:
            _, each, time = self._kept.popleft()
            if each is not None:
                self._times[each].remove(time)
                if not self._times[each]:
                    del self._times[each]

    def _state(self, end: QueuePosition) -> Mapping[str, str]:
        low = self._kept[0][0] if self._kept else self._click
        latest = "" if self._latest_impression is None else str(self._latest_impression)
        numbers = (*end, *self._click, *low)
        return {**dict(zip(_STATE, map(str, numbers), strict=True)), "latest_impression": latest}

    def _resume(self) -> None:
        begin, end = self._joined.begin(), self._joined.end()
        last = self._last_record(max(begin, end - _LAST_RECORDS), end)
        last = last or self._last_record(begin, end)
        if last is None:
            return
        numbers = [int(last.attributes[name]) for name in _STATE]
        self._next, click, low = (QueuePosition(*numbers[i : i + 2]) for i in (0, 2, 4))
        self._latest_impression = int(last.attributes["latest_impression"])
        self._click = low
        while self._click < click:
            again = self._clicks.take(self._click, 1, click)
            assert again is not None
            self._keep(again.batch, self._click)
            self._click = again.end

    def _last_record(self, offset: int, end: int) -> Record | None:
        last = None
        while offset < end:
            chunk = self._joined.read(offset, wait_seconds=1.0)
            last = chunk.records[-1].record if chunk.records else last
            offset = chunk.next_offset
        return last


def _later(time: int, other: int | None) -> int:
    return time if other is None else max(time, other)
