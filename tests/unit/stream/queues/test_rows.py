"""Rows out of records, and what becomes of bad ones."""

from __future__ import annotations

import base64
import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.full_disk import files_up_to
from tfhybrid.errors import DataError
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.queues.row_columns import RowColumns

SCHEMA = pa.schema(
    [
        pa.field("item", pa.int64(), nullable=False),
        pa.field("price", pa.float32()),
        pa.field("tags", pa.list_(pa.int64())),
    ]
)
COLUMNS = RowColumns.of(SCHEMA)
GOOD = {"item": -(2**63), "price": 0.5, "tags": [1, 2]}


def _json(value: object) -> Record:
    return Record(json.dumps(value).encode())


@pytest.mark.parametrize("value", [GOOD, [GOOD], [GOOD, GOOD]], ids=["row", "one", "two"])
def test_json_and_arrow_say_the_same(value: object):
    decoded = rows.decode(_json(value), COLUMNS)
    again = rows.decode(rows.encode(decoded.batch), COLUMNS)
    assert decoded.batch.equals(again.batch)
    assert decoded.batch.to_pylist() == (value if isinstance(value, list) else [value])
    assert decoded.count == again.count == decoded.batch.num_rows


@pytest.mark.parametrize(
    "bad",
    [{}, {"item": None}, {"item": "seven"}, {"item": 1.5}, {"item": 2**63}, 7, None, "text", [1]],
    ids=str,
)
def test_a_bad_row_is_named_and_the_others_are_kept(bad: object):
    decoded = rows.decode(_json([GOOD, bad, GOOD]), COLUMNS)
    assert decoded.batch.to_pylist() == [GOOD, GOOD]
    assert decoded.numbers.tolist() == [0, 2]
    assert decoded.count == 3
    assert [row.number for row in decoded.bad] == [1]


def test_arrow_with_a_null_a_missing_column_and_another_type():
    batch = pa.RecordBatch.from_pylist([{"item": 1}, {"item": None}, {"item": 3}])
    assert rows.decode(rows.encode(batch), COLUMNS).bad[0].reason.startswith("ValueError: Columns")
    whole = pa.RecordBatch.from_pylist([{**GOOD, "item": item, "more": 1} for item in (1, None, 3)])
    decoded = rows.decode(rows.encode(whole), COLUMNS)
    assert decoded.batch["item"].to_pylist() == [1, 3]
    assert decoded.numbers.tolist() == [0, 2]
    text = pa.RecordBatch.from_pylist([{**GOOD, "item": "seven"}])
    assert rows.decode(rows.encode(text), COLUMNS).count == 1


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_good_or_bad(payload: bytes):
    decoded = rows.decode(Record(payload), COLUMNS)
    assert decoded.batch.num_rows + len(decoded.bad) == decoded.count


@settings(deadline=None)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_damaged_arrow_record_harms_nobody(place: int, value: int):
    batch = pa.RecordBatch.from_pylist([GOOD] * 3, schema=SCHEMA)
    payload = bytearray(rows.encode(batch).payload)
    payload[place % len(payload)] = value
    decoded = rows.decode(Record(bytes(payload)), COLUMNS)
    assert decoded.batch.num_rows + len(decoded.bad) == decoded.count


def test_numbers_are_int64():
    assert rows.decode(_json([]), COLUMNS).numbers.dtype == np.int64
    assert rows.decode(_json([]), COLUMNS).count == 0


def test_dead_letters_are_written_once_and_counted(tmp_path: Path):
    path = tmp_path / "folder" / "bad.jsonl"
    letters = DeadLetters(path, limit=2)
    for _ in range(3):
        letters.add("clicks", QueuePosition(4, 1), "no id", b"\xff{}")
    letters.close()
    with path.open("ab") as file:
        file.write(b'{"queue": "cl')  # its writer was killed
    letters = DeadLetters(path, limit=2)
    letters.add("clicks", QueuePosition(4, 1), "no id", b"\xff{}")
    letters.add("clicks", QueuePosition(4, 2), "no id", b"")
    assert letters.count == 2
    with pytest.raises(
        DataError, match=r"At most 2.*clicks at QueuePosition\(offset=5, row=0\): late"
    ):
        letters.add("clicks", QueuePosition(5, 0), "late", b"")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["offset"], line["row"]) for line in lines] == [(4, 1), (4, 2), (5, 0)]


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_bad_rows_of_many_records_are_one_line_of_the_log_and_one_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = tmp_path / "clicks"
    with closing(LogQueue(folder, write=True, fsync="never")) as writer:
        writer.append([_json([{}, {}])] * 10)
    letters = DeadLetters(tmp_path / "bad.jsonl", limit=100)
    with closing(letters), closing(LogQueue(folder)) as queue:
        reader = QueueReader(queue, RowColumns.read({"item": "int64"}), letters)
        assert reader.take(QueuePosition(0, 0), 100) is not None
    assert len(_lines(tmp_path / "bad.jsonl")) == 20
    assert len(caplog.messages) == 1
    assert "Bad rows in " in caplog.text
    assert ": 20, the first at QueuePosition(offset=0, row=0): Column 'item'" in caplog.text


def test_a_damaged_line_of_dead_letters_is_named_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "bad.jsonl"
    whole = b'{"queue": "clicks", "offset": 1, "row": 2, "reason": "", "payload": ""}\n'
    damaged = [b"no letter\n", b"\xff\n", b"[]\n", b'{"queue": "clicks"}\n', b"\n"]
    damaged.append(whole[:30] + whole)
    before = b"".join(damaged) + whole
    path.write_bytes(before + b'{"queue')
    letters = DeadLetters(path, limit=2)
    assert letters.count == 1
    for number in range(1, len(damaged) + 1):
        assert f"line {number}, does not describe a bad row" in caplog.text
    letters.add("clicks", QueuePosition(1, 2), "again", b"")
    letters.add("clicks", QueuePosition(1, 3), "new", b"")
    assert path.read_bytes().startswith(before + b'{"queue": "clicks", "offset": 1')
    assert path.read_bytes().count(b"\n") == len(damaged) + 2


def test_dead_letters_wait_for_space_on_the_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "bad.jsonl"
    letters = DeadLetters(path, limit=100)
    letters.add("clicks", QueuePosition(0, 0), "first", b"{}")
    size = path.stat().st_size
    for room in (0, 1, size - 1, 2 * size):  # also half a line, and one of two
        before, count = path.read_bytes(), letters.count
        with files_up_to(len(before) + room):
            letters.add("clicks", QueuePosition(1, 2 * room), "no space", b"{}")
            letters.add("clicks", QueuePosition(1, 2 * room + 1), "no space", b"{}")
        assert path.read_bytes().startswith(before)
        assert path.read_bytes().endswith(b"}\n")
        assert letters.count == count + 2
        letters.add("clicks", QueuePosition(2, room), "space again", b"{}")
        assert len(_lines(path)) == letters.count
    assert "bad rows are kept in memory until there is space" in caplog.text
    with files_up_to(path.stat().st_size):
        letters.add("clicks", QueuePosition(3, 0), "at the end", b"{}")
    letters.close()
    assert _lines(path)[-1]["reason"] == "at the end"


def test_dead_letters_have_a_limit_in_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "bad.jsonl"
    letters = DeadLetters(path, limit=100, max_bytes=5 << 20)
    record = b"x" * (3 << 20)
    for number in range(6):
        letters.add("clicks", QueuePosition(number, 0), "long", record)
    assert path.stat().st_size <= 5 << 20
    assert letters.count == 6
    lines = _lines(path)
    assert len(lines) == 3
    assert {(line["bytes"], line["payload"]) for line in lines} == {
        (3 << 20, base64.b64encode(record[: 1 << 20]).decode())
    }
    assert caplog.text.count("it has its maximum of 5242880 bytes") == 1
