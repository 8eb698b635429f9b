"""Labels for impressions: each once, with whether a click followed within a window."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from tfhybrid.errors import ConfigError
from tfhybrid.stream import rows
from tfhybrid.stream.dead_letters import DeadLetters
from tfhybrid.stream.queue import Position, Queue, Record
from tfhybrid.stream.queue_reader import QueueReader

_LAST_RECORDS = 64  # where the last one is looked for first: not every offset has a record

_STATE = ("impression", "impression_row", "click", "click_row", "low", "low_row")


@dataclasses.dataclass(frozen=True)
class JoinColumns:
    """The columns that a join reads and makes.

    Args:
        id: By which a click names its impression, in both queues.
        time: When it happened, an integer, in both queues; the window's unit.
        label: Float, 1 if a click followed; of the joined rows.
    """

    id: str = "id"
    time: str = "time"
    label: str = "label"


class Join:
    """Joins impressions and clicks into a queue of labelled rows.

    Impressions are taken in their order. For each, clicks are read until one happened later than
    its window and `lateness` allow; then it is written, with a label of 1 if one of the clicks
    that were read has its id and lies in the window. So what is written depends on the two queues
    alone, not on when they were read, and a joined row is never corrected.

    How far it is stands in the last record that it has written. After `kill -9` it goes on there:
    each impression is written once.

    A queue of clicks that is silent holds the join up. Its writer sends a row with a time and no
    id now and then.

    Args:
        impressions: With the columns of `schema`.
        clicks: With id and time.
        joined: Where labelled rows go; written by nobody else.
        schema: Columns of an impression, among them id and time.
        window: How long after an impression a click counts, in units of the time column.
        lateness: How much earlier than one before it in its queue a click may have happened.
        letters: Where bad rows go.
        columns: Names.

    Raises:
        ConfigError: The schema lacks a column, or the window is negative.
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
        if names.id not in schema.names or names.time not in schema.names or window < 0:
            raise ConfigError(
                f"A join wants columns '{names.id}' and '{names.time}' and a window of 0 or more. "
                f"Received: {schema.names}, window={window}"
            )
        click = pa.schema([schema.field(names.id).with_nullable(True), schema.field(names.time)])
        self._impressions = QueueReader(impressions, schema, letters)
        self._clicks = QueueReader(clicks, click, letters)
        self._joined = joined
        self._window = window
        self._lateness = lateness
        self._next = Position(impressions.begin(), 0)
        self._click = Position(clicks.begin(), 0)
        # Clicks that may still count: where they begin, id and time.
        self._kept: collections.deque[tuple[Position, object, int]] = collections.deque()
        self._times: dict[object, list[int]] = {}
        self._latest_click: int | None = None
        self._latest_impression: int | None = None
        self._resume()

    def run_once(self, *, most: int = 1000) -> int:
        """Writes what can be labelled now, as one record.

        Args:
            most: Impressions that are looked at.

        Returns:
            Rows that were written.
        """
        found = self._impressions.take(self._next, most)
        if found is None:
            return 0
        names = self._columns
        ids, times = (found.batch[name].to_pylist() for name in (names.id, names.time))
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
        batch = found.batch.slice(0, len(labels))
        labelled = batch.append_column(names.label, pa.array(labels, pa.float32()))
        whole = found if len(labels) == found.batch.num_rows else None
        cut = whole or self._impressions.take(self._next, len(labels))
        assert cut is not None
        self._joined.append([rows.encode(labelled, **self._state(cut.end))])
        self._next = cut.end
        return len(labels)

    def _clicks_read_to(self, time: int) -> bool:
        """Reads clicks until one is later than a time by more than the lateness."""
        while self._latest_click is None or self._latest_click - self._lateness <= time:
            found = self._clicks.take(self._click, 1)
            if found is None:
                return False
            self._keep(found.batch, self._click)
            self._click = found.end
        return True

    def _keep(self, batch: pa.RecordBatch, at: Position) -> None:
        names = self._columns
        for each, time in zip(
            batch[names.id].to_pylist(), batch[names.time].to_pylist(), strict=True
        ):
            self._latest_click = _later(time, self._latest_click)
            if each is not None:
                self._times.setdefault(each, []).append(time)
            self._kept.append((at, each, time))

    def _forget_clicks(self) -> None:
        """Forgets clicks before all impressions that may come."""
        assert self._latest_impression is not None
        while len(self._kept) > 1 and self._kept[0][2] < self._latest_impression - self._lateness:
            _, each, time = self._kept.popleft()
            if each is not None:
                self._times[each].remove(time)
                if not self._times[each]:
                    del self._times[each]

    def _state(self, end: Position) -> Mapping[str, str]:
        low = self._kept[0][0] if self._kept else self._click
        latest = "" if self._latest_impression is None else str(self._latest_impression)
        places = (*end, *self._click, *low)
        return {**dict(zip(_STATE, map(str, places), strict=True)), "latest_impression": latest}

    def _resume(self) -> None:
        begin, end = self._joined.begin(), self._joined.end()
        last = self._last_record(max(begin, end - _LAST_RECORDS), end)
        last = last or self._last_record(begin, end)
        if last is None:
            return
        places = [int(last.attributes[name]) for name in _STATE]
        self._next, click, low = (Position(*places[i : i + 2]) for i in (0, 2, 4))
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
            found = self._joined.read(offset, wait_seconds=1.0)
            last = found.records[-1].record if found.records else last
            offset = found.next_offset
        return last


def _later(time: int, other: int | None) -> int:
    return time if other is None else max(time, other)
