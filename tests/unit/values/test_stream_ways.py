"""Drawn rows through the records of a stream and a label join: what arrives, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.slow_judge import BAD
from tests.support.stream.queue_contract import read_all
from tests.support.ways_in.drawn_rows import (
    LABEL,
    PRICE,
    SIZES,
    TAGS,
    USER,
    Row,
    arrow_of,
    drawn,
    is_bad,
    verdicts_of,
)
from tests.support.ways_in.ways import WAYS
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.decoded_rows import DecodedRows
from tfhybrid.stream.queues.label_join import Join
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.values import Column

SAMPLE = [USER, PRICE, Column("city", "string", missing="none"), TAGS, LABEL]
DECLARED = RowColumns.read(
    {
        "user": {"type": "int64", "missing": -1},
        "price": {"type": "float32", "missing": 0.5},
        "city": {"type": "string", "missing": "none"},
        "tags": "list<int64>",
        "label": {"type": "float32", "role": "label", "classes": [0, 1]},
    }
)


def judged(columns: list[Column], table: list[Row]) -> list[Row]:
    """Returns the verdicts; strings stay texts in a stream, and a missing list is bad in it."""
    verdicts = verdicts_of(columns, table, hash_string=lambda text: text)
    for row, verdict in zip(table, verdicts, strict=True):
        verdict["tags"] = BAD if row["tags"] is None else verdict["tags"]
    return verdicts


def assert_judged(decoded: DecodedRows, verdicts: list[Row]) -> None:
    good = [number for number, verdict in enumerate(verdicts) if not is_bad(verdict)]
    assert (decoded.count, decoded.numbers.tolist()) == (len(verdicts), good)
    assert [row.number for row in decoded.bad] == sorted({*range(len(verdicts))} - {*good})
    assert repr(decoded.batch.to_pylist()) == repr([verdicts[number] for number in good])


def json_of(table: list[Row]) -> bytes:
    return json.dumps(table, default=float).encode()


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_json(seed: int, count: int) -> None:
    table, _ = drawn(WAYS["JSON in a stream"], SAMPLE, seed, count)
    verdicts = judged(SAMPLE, table)
    assert_judged(rows.decode(Record(json_of(table)), DECLARED), verdicts)
    for row, verdict in zip(table, verdicts, strict=True):
        assert_judged(rows.decode(Record(json_of([row])[1:-1]), DECLARED), [verdict])


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(6))
def test_arrow(seed: int, count: int) -> None:
    table, types = drawn(WAYS["Arrow in a stream"], SAMPLE, seed, count)
    batches = arrow_of(table, types).combine_chunks().to_batches(max_chunksize=10)
    verdicts = judged(SAMPLE, table)
    for first, batch in zip(range(0, len(table), 10), batches, strict=True):
        decoded = rows.decode(rows.encode(batch), DECLARED)
        assert_judged(decoded, verdicts[first : first + 10])


JOINED = [Column("user"), Column("price", "number"), Column("city", "string"), TAGS]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("user", pa.int64(), nullable=False),
        pa.field("price", pa.float32(), nullable=False),
        pa.field("city", pa.string(), nullable=False),
        pa.field("tags", pa.list_(pa.int64()), nullable=False),
    ]
)


@pytest.mark.parametrize("count", SIZES)
def test_label_joins(tmp_path: Path, count: int) -> None:
    """A bad impression is told, and others get their labels."""
    table, _ = drawn(WAYS["label joins"], JOINED, count, count)
    count = len(table)
    queues = {
        name: LogQueue(tmp_path / name, write=True, fsync="never")
        for name in ("impressions", "clicks", "joined")
    }
    placed: list[Any] = [{"id": n, "time": n, **row} for n, row in enumerate(table)]
    for first in range(0, count, 10):
        queues["impressions"].append([Record(json_of(placed[first : first + 10]))])
    clicks = [{"id": n, "time": n} for n in range(0, count, 2)] + [{"time": 10**6}]
    queues["clicks"].append([Record(json_of(clicks))])
    letters = DeadLetters(tmp_path / "bad.jsonl", limit=100)
    join = Join(*queues.values(), SCHEMA, window=0, letters=letters)
    while join.run_once():
        pass
    columns = RowColumns.of(SCHEMA.append(pa.field("label", pa.float32())))
    records = [rows.decode(record, columns).batch for record in read_all(queues["joined"])]
    received = [row for batch in records for row in batch.to_pylist()]
    verdicts = judged(JOINED, table)
    good = [n for n, verdict in enumerate(verdicts) if not is_bad(verdict)]
    wanted = [{"id": n, "time": n, **verdicts[n], "label": 1.0 - n % 2} for n in good]
    assert repr(received) == repr(wanted)
    lines = (tmp_path / "bad.jsonl").read_text().splitlines() if len(good) < count else []
    assert len(lines) == count - len(good)
