"""Every entry of `check` says what a slow judge in plain Python says, value by value."""

from __future__ import annotations

import dataclasses
import datetime
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.slow_judge import BAD, judge
from tfhybrid.errors import ConfigError
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.values import ArrowColumn, Column, QuickCheck, Reason, check, expected
from tfhybrid.values.cells import value_at

INTEGERS = [0, -1, 7, 2**24, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 10**30]
FLOATS = [0.0, 7.0, 7.5, -0.5, 2.0**24, 2.0**53 - 1, 2.0**53, 1e18, 1e39, 3.5e38, -1e39]
FLOATS += [float("nan"), float("inf"), float("-inf"), 5e-324]
NARROW = [np.float32(2**24 - 1), np.float32(2**24), np.float32(1e18), np.float16(2047)]
NARROW += [np.float16(2048), np.int8(-3), np.uint64(2**63), np.uint64(5), np.bool_(True)]
TEXTS = ["", "a", "7", "7.0", "tv", "phone", "ü", b"a", b"\xff", b""]
TIMES = ["2017-11-07 09:30:38", datetime.datetime(1969, 12, 31, 23, 59, 59, 5)]
TIMES += [datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)]
OTHERS: list[Any] = [None, True, False, [1], (), {}, object()]
VALUES: list[Any] = [*INTEGERS, *FLOATS, *NARROW, *TEXTS, *TIMES, *OTHERS]

COLUMNS = [
    Column("x"),
    Column("x", missing=-1),
    Column("x", low=0, high=10, missing=-1),
    Column("x", "number"),
    Column("x", "number", missing=0.5, low=-1.0),
    Column("x", "number", finite=False, missing=0),
    Column("x", "label", classes=(0, 1)),
    Column("x", "label", dtype="int64", low=0, high=2**62 - 1),
    Column("x", "label", classes=("phone", "tv")),
    Column("x", "string"),
    Column("x", "string", missing=-1, empty="missing"),
    Column("x", "string", missing="absent"),
    Column("x", "time"),
    Column("x", "time", missing=0, empty="missing"),
]


def hash_one(text: str | bytes) -> int:
    raw = text.encode() if isinstance(text, str) else text
    return int.from_bytes(raw[-7:], "big") + len(raw)


def hash_all(texts: np.ndarray) -> np.ndarray:
    return np.array([hash_one(text) for text in texts], np.int64)


def assert_judged(column: Column, rows: list[Any], values: Any, **how: Any) -> None:
    checked = check(column, values, hash_strings=hash_all, **how)
    verdicts = [judge(column, row, hash_one) for row in rows]
    assert checked.bad.tolist() == [verdict is BAD for verdict in verdicts]
    assert (checked.reasons > 0).tolist() == checked.bad.tolist()
    good = [verdict for verdict in verdicts if verdict is not BAD]
    assert checked.values.dtype == column.dtype
    if checked.lengths is None:
        received = checked.values[~checked.bad].tolist()
    else:
        ends = np.cumsum(checked.lengths)
        lists = [
            checked.values[end - length : end].tolist()
            for end, length in zip(ends, checked.lengths, strict=True)
        ]
        received = [row for row, bad in zip(lists, checked.bad, strict=True) if not bad]
    assert repr(received) == repr(good)


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_python_values_alone_and_together(column: Column) -> None:
    for value in VALUES:
        assert_judged(column, [value], [value])
    for seed in range(20):
        rows = random.Random(seed).choices(VALUES, k=seed * 3)
        assert_judged(column, rows, rows)


@pytest.mark.parametrize("length", [None, 2])
@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_lists_of_python_values(column: Column, length: int | None) -> None:
    nested = Column(**{**vars(column), "length": length})
    for seed in range(20):
        draw = random.Random(seed)
        rows = [
            draw.choice([None, 5, "a", *[draw.choices(VALUES, k=draw.randrange(4))] * 5])
            for _ in range(seed)
        ]
        assert_judged(nested, rows, rows)


TYPES = [
    (pa.int64(), [0, -1, 2**63 - 1, None]),
    (pa.int8(), [-128, 127, None]),
    (pa.uint64(), [0, 2**63 - 1, 2**63, None]),
    (pa.float64(), [*FLOATS, None]),
    (pa.float32(), [0.0, 2.0**24 - 1, 2.0**24, 0.5, float("nan"), float("inf"), None]),
    (pa.bool_(), [True, False, None]),
    (pa.string(), ["", "a", "tv", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["", "a", "tv", None]),
    (pa.null(), [None, None]),
    (pa.timestamp("ms"), [datetime.datetime(2026, 1, 2), None]),
    (pa.struct([("a", pa.int64())]), [{"a": 1}, None]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=lambda value: str(value)[:20])
def test_arrow_and_numpy_arrays(kind: pa.DataType, values: list[Any], column: Column) -> None:
    array = pa.array(values, kind) if kind != TYPES[7][0] else pa.array(values).cast(kind)
    rows = values
    if kind == pa.float32():  # as Arrow's values are, for the judge
        rows = [None if value is None else np.float32(value) for value in values]
    assert_judged(column, rows, array)
    assert_judged(column, rows + rows, pa.chunked_array([array, array]))
    for length in (None, 2):
        nested = Column(**{**vars(column), "length": length})
        assert_judged(nested, rows, array)  # single values where lists should be
    lists = [rows[:2], rows[1:], [], None]
    arrow = (
        pa.array([values[:2], values[1:], [], None], pa.list_(kind))
        if not (pa.types.is_dictionary(kind))
        else None
    )
    if arrow is not None:
        for length in (None, 2, 1):
            assert_judged(Column(**{**vars(column), "length": length}), lists, arrow)
    whole = [value for value in values if value is not None]
    if whole and not pa.types.is_struct(kind) and not pa.types.is_timestamp(kind):
        plain = pa.array(whole, pa.string()) if pa.types.is_dictionary(kind) else array.drop_null()
        numpy = plain.to_numpy(zero_copy_only=False)
        rows = [row for row in rows if row is not None]
        assert_judged(column, rows, numpy)


PLAIN = [
    *COLUMNS,
    Column("x", "number", dtype="float64"),
    Column("x", "number", dtype="float16"),
    Column("x", dtype="int8"),
    Column("x", low=0, high=255),
    Column("x", "number", dtype="int8", low=0, high=1),
    Column("x", "label", classes=(0, 1), dtype="int8"),
]
KINDS = [
    *(each for each in TYPES if not pa.types.is_dictionary(each[0])),
    (pa.int8(), [1, -128]),
    (pa.uint8(), [0, 255]),
    (pa.uint32(), [0, 2**32 - 1]),
    (pa.float16(), [np.float16(0.5), np.float16(2048)]),
]


def passes(column: Column, array: pa.Array, *, nullable: bool = False) -> bool:
    return not QuickCheck([ArrowColumn(column, array.type, nullable)]).doubtful([array])


@pytest.mark.parametrize("column", PLAIN, ids=repr)
def test_what_passes_has_no_bad_row_and_stays_the_same(column: Column) -> None:
    """For each subset of the values of a type, so that good ones are alone, too."""
    for kind, values in KINDS:
        for value in values:
            rows = [values[0], value]
            for array, length in (
                (pa.array(rows, kind), 1),
                (pa.array([rows, [], rows], pa.list_(kind)), None),
                (pa.array([rows, None], pa.list_(kind)), None),
                (pa.array([rows, rows], pa.list_(kind)), 2),
                (pa.array([rows, rows], pa.list_(kind, 2)), 2),
                (pa.array([rows, None], pa.list_(kind, 2)), 2),
            ):
                assert_stays(dataclasses.replace(column, length=length), array)


def assert_stays(column: Column, array: pa.Array) -> None:
    checked = check(column, array)
    if passes(column, array):
        assert not checked.bad.any()
        flat = array if column.length == 1 else array.flatten()
        values = checked.values.reshape(-1).tolist()
        if pa.types.is_boolean(flat.type):
            values = [bool(value) for value in values]
        assert repr(values) == repr(flat.to_pylist())
        dtype = flat.to_numpy(zero_copy_only=False).dtype
        narrow = dtype.kind in "iub" and np.can_cast(dtype, column.dtype)
        assert narrow or str(dtype) in (column.dtype, "object")
    if passes(column, array, nullable=True):
        whole = array.drop_null()
        assert passes(column, whole)
        assert not check(column, whole).bad.any()


NAMES = [*(f"int{bits}" for bits in (8, 16, 32, 64)), "uint8", "uint16", "uint32", "bool"]
NAMES += ["float16", "float32", "float64", "string"]


@pytest.mark.parametrize("name", NAMES)
def test_what_streams_declare_passes(name: str) -> None:
    leaf = pa.type_for_alias(name)
    value = {"string": "a", "bool": True, "float16": np.float16(1)}.get(name, 1)
    for kind, row in ((leaf, value), (pa.list_(leaf), [value]), (pa.list_(leaf, 2), [value] * 2)):
        required, optional = (
            RowColumns.of(pa.schema([pa.field("x", kind, nullable=nullable)])).quick
            for nullable in (False, True)
        )
        whole, gap = pa.array([row], kind), pa.array([row, None], kind)
        assert required.doubtful([whole]) == optional.doubtful([whole]) == []
        assert required.doubtful([gap]) == [0]
        if not pa.types.is_fixed_size_list(kind):  # its null lists have items, which are null
            assert optional.doubtful([gap]) == []
        if kind is not leaf:
            assert optional.doubtful([pa.array([[None, *row[1:]]], kind)]) == [0]


def test_limits_that_are_narrower_than_the_type_are_doubtful() -> None:
    for settings in ({"high": 254}, {"low": 1}):
        (declared,) = RowColumns.read({"x": {"type": "uint8", **settings}}).declared
        assert declared.quick.doubtful([pa.array([7], pa.uint8())]) == [0]
    (wide,) = RowColumns.read({"x": "uint64"}).declared
    assert wide.quick.doubtful([pa.array([7], pa.uint64())]) == [0]


def test_arrays_of_a_record_are_doubtful_one_by_one() -> None:
    types = ["float32", "int64", "float32", "float64", "float32", "string", "float64"]
    quick = RowColumns.read({f"c{n}": name for n, name in enumerate(types)}).quick
    good = [pa.array([0.5, 2], kind) if "f" in kind else pa.array([1, 2]) for kind in types]
    good[5] = pa.array(["a", "b"])
    assert quick.doubtful(good) == []
    bad = {
        0: pa.array([0.5, np.inf], pa.float32()),
        1: pa.array([1, None]),
        3: pa.array([np.nan, 1.0]),
        4: pa.array([1.0, 2.0]),
        5: pa.array([1, 2]),
    }
    for numbers in ([0], [1], [3], [4], [5], [0, 3], [0, 1, 4], [*bad]):
        arrays = [bad[n] if n in numbers else array for n, array in enumerate(good)]
        assert quick.doubtful(arrays) == numbers


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_views_of_texts_are_texts(column: Column) -> None:
    """Polars has its strings in this form."""
    rows = ["", "a", "tv", None]
    assert_judged(column, rows, pa.array(rows, pa.string_view()))
    bags = Column(**{**vars(column), "length": None})
    assert_judged(bags, [rows, [], None], pa.array([rows, [], None], pa.list_(pa.string_view())))


@pytest.mark.parametrize("values", [[1, 3 * 10**9, -1], [1.0, 3e9, -1.0], [1, 3e9, -1.0]])
def test_numbers_fit_the_dtype_of_the_column(values: list[float]) -> None:
    column = Column("x", "number", dtype="int32")
    for form in (values, np.array(values)):
        checked = check(column, form)
        assert checked.values.dtype == np.int32
        assert checked.values[[0, 2]].tolist() == [1, -1]
        assert checked.reasons.tolist() == [0, Reason.RANGE, 0]


@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_masked_values_are_missing(column: Column) -> None:
    for array in (np.array([7, 8, 9]), np.float32([7, 0.5, 9]), np.array(["a", "tv", "b"])):
        masked = np.ma.array(array, mask=[False, False, True])
        rows = [array[0].item(), array[1].item(), None]
        assert_judged(column, rows, masked)
        nested = Column(**{**vars(column), "length": None})
        assert_judged(nested, [rows], masked[np.newaxis])


SPELLED_TIMES = [
    *("2017-11-07 09:30:38", "2017-11-07T09:30:38.5", "2017-11-07 09", "0001-01-01", "9999-12-31"),
    *("2017-11-07 09:30:38.1234567", "2017-11-07 09:30:38Z", "20171107T093038", "2017-W45-2"),
    *("0000-01-01", "2017-11-07 24:00:01", "2017-02-29", " 2017-11-07", "27.11.2026", "", "x"),
    *("0000-12-31 23:59:59-23:59", "2017-11-07 09:30:38 Z", "2017-11-07 09:30:38+24:00", "2017Z"),
]
WITH_OFFSETS = ["2017-11-07 09:30:38Z", "2017-11-07T09:30+0100", "9999-12-31 09:30:38.5-23:59"]


@pytest.mark.parametrize(
    "column",
    [
        Column("x", "time"),
        Column("x", "time", missing=0),
        Column("x", "time", missing=0, empty="missing"),
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_spelled_times_are_read_alike_alone_and_together(column: Column, kind: pa.DataType) -> None:
    """Arrow reads the first five, or times with offsets; any other makes Python read them all."""
    quick = SPELLED_TIMES[:5]
    together = (quick, [*quick, None, ""], WITH_OFFSETS, [*WITH_OFFSETS, None, ""])
    early = ["0000-12-31 23:59:59-23:59", "2017-11-07 09:30:38Z"]
    for rows in (*together, early, *([text] for text in SPELLED_TIMES), SPELLED_TIMES):
        raw = [row.encode() if row and pa.types.is_large_binary(kind) else row for row in rows]
        assert_judged(column, rows, pa.array(raw, kind))


def test_flat_values_with_lengths() -> None:
    values = np.array([5, 6, 7, 8])
    checked = check(Column("x", missing=-1), values, lengths=np.array([1, 0, 2, 1]))
    assert checked.values[[0, 1, 3]].tolist() == [5, -1, 8]
    assert checked.reasons.tolist() == [0, 0, Reason.LENGTH, 0]
    checked = check(Column("x", length=None), values, lengths=np.array([1, 0, 2, 1]))
    assert (checked.values.tolist(), checked.lengths.tolist()) == ([5, 6, 7, 8], [1, 0, 2, 1])


@pytest.mark.parametrize(
    "values",
    [np.array([1, 2, 3]), pa.array([1, 2, 3]), [np.int64(1), 2, 3]],
    ids=lambda values: type(values).__name__,
)
def test_errors_show_plain_values(values: Any) -> None:
    ends = np.cumsum([2, 0, 1])
    shown = [repr(value_at(values, row, ends)) for row in range(3)]
    assert shown == ["[1, 2]", "None", "3"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("empty", ["string", "missing"])
def test_strings_of_arrow_that_are_no_utf8_are_bad(
    kind: pa.DataType, nested: bool, empty: str
) -> None:
    raw = pa.array([b"a", b"\xff", None, b""], _BYTES[kind])
    strings = pa.Array.from_buffers(kind, len(raw), raw.buffers())
    values = pa.ListArray.from_arrays(range(5), strings) if nested else strings
    column = Column("x", "string", length=None if nested else 1, missing=-1, empty=empty)
    checked = check(column, values, hash_strings=lengths_of)
    assert checked.bad.tolist() == [False, True, False, False]
    assert checked.reasons[1] == Reason.SPELLING
    assert checked.values.tolist()[0::2] == [1, -1]
    assert checked.values.tolist()[3] == (0 if empty == "string" else -1)
    received = value_at(values, 1)
    assert received == ([b"\xff"] if nested else b"\xff")
    for other in (Column("x", "time", missing=0), Column("x", "label", classes=("a", "b"))):
        assert check(other, strings).bad.tolist()[1]


_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def lengths_of(texts: np.ndarray) -> np.ndarray:
    return np.array([len(text) for text in texts], np.int64)


def test_strings_stay_texts_without_a_function_that_hashes() -> None:
    checked = check(Column("x", "string", missing="?"), ["a", None, "", 5])
    assert checked.values[:3].tolist() == ["a", "?", ""]
    assert checked.bad.tolist() == [False, False, False, True]


def test_each_string_is_hashed_once() -> None:
    calls: list[int] = []

    def hashing(texts: np.ndarray) -> np.ndarray:
        calls.append(len(texts))
        return hash_all(texts)

    check(Column("x", "string"), pa.array(["a", "b"] * 1000), hash_strings=hashing)
    assert calls == [2]


def test_good_keys_are_not_copied() -> None:
    keys = pa.array(range(1000), pa.int64())
    assert np.shares_memory(check(Column("x"), keys).values, keys.to_numpy())
    numbers = np.ones(1000, np.float32)
    assert np.shares_memory(check(Column("x", "number"), numbers).values, numbers)


def test_what_is_given_is_not_changed() -> None:
    numbers = np.array([1.0, np.nan], np.float32)
    check(Column("x", "number", missing=5.0), numbers)
    assert np.isnan(numbers[1])


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("column", COLUMNS, ids=repr)
def test_every_reason_is_told_in_words(column: Column, reason: Reason) -> None:
    assert len(expected(column, reason)) > 5


@pytest.mark.parametrize(
    "settings",
    [
        {"role": "feature"},
        {"dtype": "float32"},
        {"role": "number", "dtype": "uint8"},
        {"role": "string", "dtype": "int32"},
        {"dtype": "integer"},
        {"length": 0},
        {"length": "3"},
        {"length": 2.5},
        {"empty": "null"},
        {"low": 2, "high": 1},
        {"low": "1"},
        {"role": "number", "high": "100"},
        {"role": "time", "low": datetime.date(2026, 1, 1)},
        {"missing": 1.5},
        {"missing": 2**63},
        {"missing": True},
        {"role": "number", "missing": 1e300},
        {"missing": "a"},
        {"classes": (0, 1)},
        {"role": "label", "classes": "ab"},
        {"role": "label", "classes": ("a", 1)},
    ],
)
def test_columns_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Received: "):
        Column("x", **settings)


def test_the_room_needs_no_tensorflow() -> None:
    code = "import sys, tfhybrid.values as v; v.check(v.Column('x'), [1]); v.check_texts; "
    code += "assert not {'tensorflow', 'horovod'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
