"""Rows are good or bad one by one, in JSON, lines and Arrow, as a slow judge says."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.slow_judge import BAD, judge
from tfhybrid.errors import ConfigError
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.decoded_rows import DecodedRows
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.row_columns import RowColumn, RowColumns

COLUMNS = RowColumns.read(
    {
        "item": "int64",
        "maybe": "int64?",
        "filled": {"type": "int64", "missing": -1},
        "count": "uint32",
        "price": "float32",
        "guess": "float32?",
        "medium": "string",
        "kind": {"type": "string", "missing": "none", "empty": "missing"},
        "label": {"type": "int64", "role": "label", "classes": [0, 1]},
        "seen": "list<int64>",
        "ever": "list<int64>?",
        "words": "list<string>?",
    }
)
GOOD = {
    "item": -(2**63),
    "maybe": None,
    "filled": 3,
    "count": 2**32 - 1,
    "price": 0.5,
    "guess": 1,
    "medium": "tv",
    "kind": "a",
    "label": 1,
    "seen": [1, 2**63 - 1],
    "ever": [],
    "words": ["a", ""],
}
NUMBERS = [7, 7.0, 7.5, True, 2**53, 2.0**53 - 1, 2.0**53, 2**63 - 1, 2**63, 10**30, -1, 2**32]
NUMBERS += [1e39, 3.4e38, float("nan"), float("inf"), 5e-324, 0, 1]
TEXTS = ["", "a", "7", "ü", "\ud800"]
VALUES: list[Any] = [*NUMBERS, *TEXTS, None, [], [1], {}, [[1]]]
LISTS: list[Any] = [[each] for each in VALUES]
LISTS += [[1, None], [None, None], [1, 7.0], [2**53 + 1, 7.0], [True, 1], ["a", None], [1, "a"]]


def expect(declared: RowColumn, value: Any) -> Any:
    """What becomes of a value, or `BAD`."""
    if value is None and declared.nullable:
        return None
    if value is None and declared.column.length is None:
        return BAD
    verdict = judge(declared.column, value, lambda text: text)
    column = declared.column
    may_be_nan = declared.nullable and column.length == 1 and column.role != "string"
    if may_be_nan and isinstance(value, float | np.floating) and np.isnan(value):
        return None
    texts = verdict if isinstance(verdict, list) else [verdict]
    return BAD if any(isinstance(text, str) and "\ud800" in text for text in texts) else verdict


def expect_rows(table: list[Any], columns: RowColumns = COLUMNS) -> list[dict[str, Any] | None]:
    """What becomes of each row; `None` for a bad one."""
    expected: list[dict[str, Any] | None] = []
    for row in table:
        values = {
            each.field.name: expect(each, row.get(each.field.name))
            if row.__class__ is dict
            else BAD
            for each in columns.declared
        }
        expected.append(None if BAD in values.values() else values)
    return expected


def check_decoded(decoded: DecodedRows, expected: list[dict[str, Any] | None]) -> None:
    good = [number for number, row in enumerate(expected) if row is not None]
    assert decoded.count == len(expected)
    assert decoded.numbers.tolist() == good
    assert [row.number for row in decoded.bad] == [
        number for number, row in enumerate(expected) if row is None
    ]
    decoded.batch.validate(full=True)
    assert decoded.batch.schema.equals(COLUMNS.schema)
    assert repr(decoded.batch.to_pylist()) == repr([expected[number] for number in good])


def drawn_table(seed: int) -> list[Any]:
    draw = random.Random(seed)
    table: list[Any] = []
    for _ in range(draw.choice([1, 2, 30])):
        row = dict(GOOD)
        for name in draw.choices([*GOOD], k=draw.choice([0, 0, 1, 2])):
            row[name] = draw.choice(LISTS if name in ("seen", "ever", "words") else VALUES)
        if not draw.randrange(20):
            del row[draw.choice([*GOOD])]
        table.append(draw.choice([7, None, "text", [1]]) if not draw.randrange(30) else row)
    return table


@pytest.mark.parametrize("seeds", [range(each, each + 20) for each in range(0, 200, 20)], ids=str)
def test_json_is_judged_row_by_row(seeds: range):
    for seed in seeds:
        check_json(drawn_table(seed))


def check_json(table: list[Any]) -> None:
    expected = expect_rows(table)
    texts = [json.dumps(row).encode() for row in table]
    check_decoded(rows.decode(Record(json.dumps(table).encode()), COLUMNS), expected)
    if any(isinstance(row, dict) for row in table):
        check_decoded(rows.decode(rows.of_lines(texts), COLUMNS), expected)
    for text, row in zip(texts, expected, strict=True):
        if text[:1] == b"{":
            check_decoded(rows.decode(Record(text), COLUMNS), [row])


@pytest.mark.parametrize("name", [*GOOD])
def test_each_value_in_each_column(name: str):
    for value in (*VALUES, *LISTS):
        table = [GOOD, {**GOOD, name: value}, GOOD]
        check_decoded(rows.decode(Record(json.dumps(table).encode()), COLUMNS), expect_rows(table))


@pytest.mark.parametrize(
    "values", [[7.0, True], [2**53, 7.0], [2**53 + 1, 7.0], [True, 7], [7.5, 7], [[1], 7]], ids=str
)
def test_no_verdict_depends_on_the_rows_beside_it(values: list[Any]):
    columns = RowColumns.read({"item": "int64", "seen": "list<int64>"})
    table = [{"item": value, "seen": [value]} for value in values]
    decoded = rows.decode(Record(json.dumps(table).encode()), columns)
    alone = [rows.decode(Record(json.dumps(row).encode()), columns) for row in table]
    good = [number for number, each in enumerate(alone) if not each.bad]
    assert decoded.numbers.tolist() == good
    assert decoded.batch.to_pylist() == [alone[number].batch.to_pylist()[0] for number in good]


ARROW = [
    ("item", pa.uint64(), [5, 2**63 - 1, 2**63, None]),
    ("item", pa.float64(), [7.0, 7.5, 2.0**53 - 1, 2.0**53, 1e18, None]),
    ("item", pa.float32(), [7.0, 2.0**24 - 1, 2.0**24, None]),
    ("item", pa.bool_(), [True, None]),
    ("item", pa.string(), ["7", None]),
    ("item", pa.int8(), [-128, None]),
    ("maybe", pa.int64(), [1, None]),
    ("maybe", pa.float64(), [1.0, float("nan"), None]),
    ("filled", pa.int64(), [1, None]),
    ("count", pa.int64(), [-1, 0, 2**32 - 1, 2**32, None]),
    ("price", pa.float64(), [1e39, 3.4e38, float("nan"), float("inf"), 0.1, None]),
    ("price", pa.float32(), [0.5, float("nan"), float("inf"), None]),
    ("price", pa.int64(), [1, None]),
    ("guess", pa.float32(), [0.5, float("nan"), float("inf"), None]),
    ("guess", pa.null(), [None, None]),
    ("medium", pa.large_string(), ["a", "", None]),
    ("medium", pa.string_view(), ["a", "", None]),
    ("medium", pa.dictionary(pa.int32(), pa.string()), ["a", "a", None]),
    ("kind", pa.string(), ["a", "", None]),
    ("label", pa.bool_(), [True, False, None]),
    ("seen", pa.list_(pa.int64()), [[1, None], [], None, [2**63 - 1]]),
    ("seen", pa.list_(pa.float64()), [[7.0, 7.5], [7.0], [2.0**53]]),
    ("seen", pa.large_list(pa.int64()), [[1], None]),
    ("seen", pa.list_(pa.int64(), 2), [[1, 2], None, [1, None]]),
    ("ever", pa.list_(pa.int64()), [[1], None, [None]]),
    ("words", pa.list_(pa.string()), [["a", ""], None, ["a", None]]),
    ("words", pa.int64(), [1, None]),
]


@pytest.mark.parametrize(("name", "dtype", "values"), ARROW, ids=str)
def test_arrow_is_judged_row_by_row(name: str, dtype: pa.DataType, values: list[Any]):
    table = [{**GOOD, name: value} for value in values]
    whole = pa.RecordBatch.from_pylist([GOOD] * len(values), schema=COLUMNS.schema)
    column = (
        pa.array(values).cast(dtype) if pa.types.is_dictionary(dtype) else pa.array(values, dtype)
    )
    whole = whole.set_column(whole.schema.get_field_index(name), name, column)
    if dtype == pa.float32():
        table = [
            {**row, name: None if v is None else np.float32(v)}
            for row, v in zip(table, values, strict=True)
        ]
    expected = expect_rows(table)
    check_decoded(rows.decode(rows.encode(whole), COLUMNS), expected)
    for number, row in enumerate(expected):
        check_decoded(rows.decode(rows.encode(whole.slice(number, 1)), COLUMNS), [row])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(whole)
        writer.write_batch(whole.slice(1))
    chunked = Record(sink.getvalue().to_pybytes())
    check_decoded(rows.decode(chunked, COLUMNS), [*expected, *expected[1:]])


@pytest.mark.parametrize("name", ["medium", "words"])
def test_a_text_that_is_not_utf8_is_one_bad_row(name: str):
    raw = pa.array([b"a", b"\xff", b"b"]).view(pa.string())
    if name == "words":
        raw = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), raw)
    whole = pa.RecordBatch.from_pylist([GOOD] * 3, schema=COLUMNS.schema)
    whole = whole.set_column(whole.schema.get_field_index(name), name, raw)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_batch(whole.slice(0, 1))
        writer.write_batch(whole)
    decoded = rows.decode(Record(sink.getvalue().to_pybytes()), COLUMNS)
    assert decoded.numbers.tolist() == [0, 1, 3]
    assert "\\xff" in decoded.bad[0].reason
    values = decoded.batch[name].to_pylist()
    assert values == (["a", "a", "b"] if name == "medium" else [["a"], ["a"], ["b"]])


@pytest.mark.parametrize("kind", ["element", "large", "dictionary"])
def test_a_text_that_is_not_utf8_is_one_bad_row_in_each_type_of_texts(kind: str):
    raw = pa.array([b"a", b"\xff", b"b"]).view(pa.string())
    if kind == "dictionary":
        array, good = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), raw), "a"
    else:
        of, lists = (
            (pa.list_, pa.ListArray) if kind == "element" else (pa.large_list, pa.LargeListArray)
        )
        dtype = of(pa.field("element", pa.string()))
        array, good = (
            lists.from_arrays(
                pa.array([0, 1, 2, 3, 3], pa.int32() if kind == "element" else pa.int64()),
                raw,
                type=dtype,
            ),
            [],
        )
    columns = RowColumns.read({"x": "string" if kind == "dictionary" else "list<string>"})
    decoded = rows.decode(rows.encode(pa.RecordBatch.from_arrays([array], names=["x"])), columns)
    assert (decoded.numbers.tolist(), decoded.count) == ([0, 2, 3], 4)
    assert "\\xff" in decoded.bad[0].reason
    assert decoded.batch["x"].to_pylist()[-1] == good


def test_a_dictionary_whose_indices_lead_nowhere_is_one_bad_record():
    raw = pa.array([b"a", b"\xff"]).view(pa.string())
    array = pa.DictionaryArray.from_arrays(pa.array([0, 7]), raw, safe=False)
    record = rows.encode(pa.RecordBatch.from_arrays([array], names=["x"]))
    decoded = rows.decode(record, RowColumns.read({"x": "string"}))
    assert (decoded.batch.num_rows, len(decoded.bad)) == (0, 1)


LINE = json.dumps(GOOD).encode()


@pytest.mark.parametrize(
    "bad",
    [
        LINE[:-9],
        b"\x00\x00",
        b"null",
        b"[" + LINE + b"]",
        LINE + b"," + LINE,
        b'{"item": "\xff"}',
        b'{"item": %s}' % (b"1" * 5000),
        b"}],[{",
        b"[" * 100_000,
    ],
    ids=lambda line: repr(line[:20]),
)
def test_a_malformed_line_is_one_bad_row(bad: bytes):
    decoded = rows.decode(rows.of_lines([LINE, bad, LINE, bad]), COLUMNS)
    check_decoded(decoded, expect_rows([GOOD, None, GOOD, None]))
    assert decoded.bad[1].payload == bad


def test_lines_that_are_whole_together_are_bad():
    decoded = rows.decode(
        rows.of_lines([LINE + b"," + LINE, b'{"item": [1', b"2]}", LINE]), COLUMNS
    )
    check_decoded(decoded, expect_rows([None, None, None, GOOD]))


def test_a_record_without_any_object_is_one_bad_record():
    pretty = json.dumps([GOOD], indent=1).encode().split(b"\n")
    for lines in (pretty, [b""], [b"1", b"2"]):
        decoded = rows.decode(rows.of_lines(lines), COLUMNS)
        assert (decoded.count, len(decoded.bad)) == (1, 1)
        assert "lines of JSON objects" in decoded.bad[0].reason


def test_an_integer_that_python_does_not_convert_is_one_bad_row():
    text = json.dumps([GOOD, GOOD, GOOD]).replace("0.5", "1" * 5000, 1)
    check_decoded(rows.decode(Record(text.encode()), COLUMNS), expect_rows([None, GOOD, GOOD]))


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        (
            "item",
            "seven",
            r"Column 'item' (int64): expected a key, a whole number of int64. Received: 'seven'",
        ),
        ("item", None, "Column 'item' has no value"),
        ("item", 2.0**53, "Column 'item' (int64): expected a key below 2^53 if it is a float64"),
        (
            "price",
            1e39,
            "Column 'price' (float): expected a finite number of float32. Received: 1e+39",
        ),
        ("seen", [1, None], "Received: [1, None]"),
        ("seen", [None] * 999, "..."),
    ],
)
def test_a_bad_row_is_told_with_its_fault_and_without_its_neighbors(
    column: str, value: Any, reason: str
):
    bad = {**GOOD, column: value}
    whole = json.dumps([GOOD, bad, GOOD]).encode()
    decoded = rows.decode(Record(whole), COLUMNS)
    (told,) = decoded.bad
    assert reason in told.reason
    assert len(told.reason) < 400
    assert json.loads(told.payload) == bad
    assert rows.decode(Record(told.payload), COLUMNS).bad[0].reason == told.reason


def test_a_bad_row_of_arrow_is_told_without_its_neighbors():
    batch = pa.RecordBatch.from_pylist([GOOD] * 500, schema=COLUMNS.schema)
    prices = np.ones(500, np.float32)
    prices[7] = np.inf
    batch = batch.set_column(batch.schema.get_field_index("price"), "price", pa.array(prices))
    (told,) = rows.decode(rows.encode(batch), COLUMNS).bad
    assert told.number == 7
    again = rows.decode(Record(told.payload), COLUMNS)
    assert (again.count, again.bad[0].reason) == (1, told.reason)


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_bad_row_of_arrow_is_told_with_all_its_values(kind: pa.DataType):
    words = pa.ListArray.from_arrays(pa.array([0, 1, 3]), pa.array(["a", "b", "c"]).cast(kind))
    batch = pa.record_batch([pa.array([1, None]), words], names=["item", "words"])
    columns = RowColumns.read({"item": "int64", "words": "list<string>"})
    (told,) = rows.decode(rows.encode(batch), columns).bad
    with pa.ipc.open_stream(told.payload) as reader:
        assert reader.read_all().to_pylist() == [{"item": None, "words": ["b", "c"]}]


@pytest.mark.parametrize(
    "bad", [[0], [499], [0, 1, 250, 499], [*range(0, 500, 7)], [*range(500)]], ids=len
)
def test_all_rows_between_bad_ones_are_kept(bad: list[int]):
    table = [{**GOOD, "item": row, "seen": [row] * (row % 3)} for row in range(500)]
    prices = np.full(500, 0.5, np.float32)
    prices[bad] = np.nan
    batch = pa.RecordBatch.from_pylist(table, schema=COLUMNS.schema)
    batch = batch.set_column(batch.schema.get_field_index("price"), "price", pa.array(prices))
    expected = expect_rows([{**row, "price": p} for row, p in zip(table, prices, strict=True)])
    check_decoded(rows.decode(rows.encode(batch), COLUMNS), expected)


def test_what_is_no_record_of_rows_is_told_as_such():
    for payload in (b"\x1f\x8b\x08", b"item,label\n1,0\n", b"\xff\xfe{\x00}\x00", b"ARROW1"):
        (told,) = rows.decode(Record(payload), COLUMNS).bad
        assert "Expected JSON objects or an Arrow IPC stream. Received: b" in told.reason
        assert told.payload == payload


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "at least one column"),
        ({"item": None}, "Column 'item' must be a type, such as int64"),
        ({"item": "int46"}, "Column 'item' has no type of Arrow"),
        ({"item": "timestamp[s]"}, "integers, floats, bool, string, or lists of these"),
        ({"item": "list<list<int64>>"}, "integers, floats, bool, string, or lists of these"),
        ({"item": {"missing": 0}}, "must be a type"),
        ({"item": {"type": "int64", "size": 2}}, "must be a type"),
        ({"item": {"type": "int64", "missing": 0.5}}, "must be a whole number that fits int64"),
        ({"item": {"type": "float32", "high": "100"}}, "low and high must be numbers"),
        ({"item": {"type": "int64?", "missing": 0}}, "either \\? or `missing`"),
        ({"item": {"type": "int64", "role": "string"}}, "exactly if it has the type string"),
    ],
    ids=repr,
)
def test_columns_that_cannot_be(columns: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        RowColumns.read(columns)
