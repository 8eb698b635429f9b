"""Labels: each impression once, by event time, also where the joiner was killed anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stream.queue_contract import read_all
from tfhybrid.errors import ConfigError
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.label_join import Join
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.row_columns import RowColumns

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("item", pa.int64()),
    ]
)
LABELLED = SCHEMA.append(pa.field("label", pa.float32()))
WINDOW = 10


class Stream:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.impressions = LogQueue(folder / "impressions", write=True, fsync="never")
        self.clicks = LogQueue(folder / "clicks", write=True, fsync="never")
        self.joined = LogQueue(folder / "joined", write=True, fsync="never")

    def join(self, **choices) -> Join:
        """As a new process finds it."""
        letters = DeadLetters(self.folder / "bad.jsonl", limit=100)
        return Join(
            self.impressions,
            self.clicks,
            self.joined,
            choices.pop("schema", SCHEMA),
            **{"window": WINDOW, "letters": letters, **choices},
        )

    def put(self, queue: LogQueue, *found: dict) -> None:
        queue.append([Record(json.dumps(list(found)).encode())])

    def labels(self) -> list[tuple[str, float]]:
        columns = RowColumns.of(LABELLED)
        batches = [rows.decode(record, columns).batch for record in read_all(self.joined)]
        return [(row["id"], row["label"]) for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def _impression(name: str, time: int) -> dict:
    return {"id": name, "time": time, "item": 1}


def test_a_click_counts_within_the_window_alone(stream: Stream):
    stream.put(stream.impressions, *(_impression(name, 100) for name in "abcde"))
    clicks = {"a": 100, "b": 110, "c": 111, "d": 99}
    stream.put(
        stream.clicks,
        *({"id": name, "time": at} for name, at in sorted(clicks.items(), key=lambda c: c[1])),
    )
    join = stream.join()
    assert join.run_once() == 5
    assert stream.labels() == [("a", 1), ("b", 1), ("c", 0), ("d", 0), ("e", 0)]


def test_nothing_is_written_before_its_window_is_over(stream: Stream):
    stream.put(stream.impressions, _impression("a", 100), _impression("b", 120))
    join = stream.join()
    assert join.run_once() == 0
    stream.put(stream.clicks, {"id": "a", "time": 105}, {"id": None, "time": 110})
    assert join.run_once() == 0
    stream.put(stream.clicks, {"id": None, "time": 111})  # no click: time goes on
    assert join.run_once() == 1
    stream.put(stream.clicks, {"id": "b", "time": 125}, {"id": "x", "time": 200})
    assert stream.join().run_once() == 1
    assert stream.labels() == [("a", 1), ("b", 1)]


def test_clicks_that_come_late(stream: Stream):
    stream.put(stream.impressions, _impression("a", 100), _impression("b", 100))
    stream.put(stream.clicks, {"id": "x", "time": 113}, {"id": "a", "time": 108})
    stream.put(stream.clicks, {"id": "x", "time": 114}, {"id": "b", "time": 108})
    join = stream.join(lateness=3)
    assert join.run_once() == 2
    assert stream.labels() == [("a", 1), ("b", 0)]  # b's came later than the lateness allows


def test_bad_rows_are_put_aside(stream: Stream):
    stream.put(stream.impressions, _impression("a", 100), {"id": "b"}, _impression("c", 101))
    stream.put(stream.clicks, {"id": "a"}, {"id": "c", "time": 105}, {"id": "x", "time": 200})
    assert stream.join().run_once() == 2
    assert stream.labels() == [("a", 0), ("c", 1)]
    assert len((stream.folder / "bad.jsonl").read_text().splitlines()) == 2


def test_rows_without_a_time_are_bad_though_the_schema_allows_nulls(stream: Stream):
    times = pa.schema([("id", pa.string()), ("time", pa.int64()), ("item", pa.int64())])
    shown = [_impression("a", 100), {"id": "b", "time": None}, _impression("c", 7.5)]
    stream.put(stream.impressions, *shown, _impression("d", 101))
    stream.put(stream.clicks, {"id": "a", "time": None}, {"id": "a", "time": 101}, {"time": 200})
    assert stream.join(schema=times).run_once() == 2
    assert stream.labels() == [("a", 1), ("d", 0)]
    assert len((stream.folder / "bad.jsonl").read_text().splitlines()) == 3


def test_what_cannot_be(stream: Stream):
    times = SCHEMA.set(1, pa.field("time", pa.float64()))
    with pytest.raises(ConfigError, match="times of a label join are integers"):
        stream.join(schema=times)
    with pytest.raises(ConfigError, match="needs columns 'id' and 'time'"):
        stream.join(window=-1)


EVENTS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 12)), max_size=30)


@settings(deadline=None, max_examples=40)
@given(
    impressions=EVENTS,
    clicks=EVENTS,
    arrivals=st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.booleans()), max_size=20),
    most=st.integers(1, 5),
    lateness=st.integers(0, 3),
)
def test_what_is_written_depends_on_the_queues_alone(
    tmp_path_factory, impressions, clicks, arrivals, most, lateness
):
    """Whenever they are read, in pieces of any size, and wherever the joiner is killed."""
    whole = Stream(tmp_path_factory.mktemp("whole"))
    pieces = Stream(tmp_path_factory.mktemp("pieces"))
    times = {"impressions": 0, "clicks": 0}
    shown, clicked = [], []
    for kind, events, into in (("impressions", impressions, shown), ("clicks", clicks, clicked)):
        for name, step in events:
            times[kind] += step - 2  # not always in order
            into.append({"id": name, "time": times[kind]})
    clicked.append({"id": None, "time": 10_000})
    for each in shown:
        whole.put(whole.impressions, each)
    for each in clicked:
        whole.put(whole.clicks, each)
    assert whole.join(lateness=lateness).run_once(max_impressions=10**6) == len(shown)
    join = pieces.join(lateness=lateness)
    left = {True: list(shown), False: list(clicked)}
    for of_impressions, count, killed in [*arrivals, (True, 99, True), (False, 99, True)]:
        queue = pieces.impressions if of_impressions else pieces.clicks
        for each in left[of_impressions][:count]:
            pieces.put(queue, each)
        del left[of_impressions][:count]
        join.run_once(max_impressions=most)
        if killed:
            join = pieces.join(lateness=lateness)
    while join.run_once(max_impressions=most):
        join = pieces.join(lateness=lateness)
    assert pieces.labels() == whole.labels()
    assert [name for name, _ in pieces.labels()] == [each["id"] for each in shown]
