"""Tables in memory of every type of column, by `Batches.of`."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tfhybrid.data import Batches, Clicks, Shard
from tfhybrid.data.formats import table_columns
from tfhybrid.errors import ConfigError, DataError

INTERVALS = pa.array([(1, 2, 3), (4, 5, 6)], pa.month_day_nano_interval())


def clicks_of(**columns: Any) -> Clicks:
    names = {"features", "dense", "missing_key", "missing_value"} & columns.keys()
    options = {name: columns.pop(name) for name in names}
    table = {"label": np.array([1, 0]), **columns}
    batches = Batches.of(
        table, label="label", batch_size=2, shuffle=False, shard=Shard(0, 1), **options
    )
    (clicks,) = batches.batches()
    return clicks


@pytest.mark.parametrize(
    ("user", "keys"),
    [
        (np.array([7, 8], ">i8"), [7, 8]),
        (np.array([[7, 8], [9, 10]], ">i4"), [[7, 8], [9, 10]]),
        (np.arange(4)[::2], [0, 2]),
        (np.asfortranarray([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.ma.array([1, 2], mask=[False, True]), [1, -1]),
        (np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]), [[1, -1], [3, 4]]),
        (range(2), [0, 1]),
        (pa.array([5, 7], pa.uint8()).dictionary_encode(), [5, 7]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([5, None])), [5, -1]),
        (pa.array([[0], [1], [2, 3]]).slice(1), [[1], [2, 3]]),
        (pa.array([[0, 1], [2, 3], [4, 5]], pa.list_(pa.int64(), 2)).slice(1), [[2, 3], [4, 5]]),
        (pa.array([[7], [8]], pa.list_(pa.int64(), 1)), [[7], [8]]),
        (pa.chunked_array([[7], [8]]), [7, 8]),
        (pa.nulls(2), [-1, -1]),
    ],
)
def test_keys_of_every_array(user: Any, keys: list[Any]) -> None:
    clicks = clicks_of(user=user, features=["user"], dense=[], missing_key=-1)
    assert clicks.features["user"].tolist() == keys


@pytest.mark.parametrize(
    "other",
    [
        INTERVALS,
        pa.array([{}, {}], pa.struct([])),
        pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
        pa.array([b"a" * 16, b"b" * 16], pa.binary(16)),
    ],
)
def test_a_column_that_is_not_read_may_have_any_type(other: pa.Array) -> None:
    assert clicks_of(user=[7, 8], other=other, features=["user"]).features.keys() == {"user"}


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (INTERVALS, "'user': expected whole numbers, strings.*Received: month_day_nano"),
        (pa.RunEndEncodedArray.from_arrays([2], [7]), "'user': expected .*run_end_encoded"),
        (pa.array([[], []], pa.list_(pa.int64(), 0)), r"'user': expected .*\[0\]"),
        ([[[1]], [[2]]], "'user': expected integers or strings as keys"),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "'user', row 1: expected a list of 2"),
        (np.array([1, 2**63], np.uint64), "'user', row 1: expected keys that are int64"),
        ([1, decimal.Decimal(2)], "'user'"),
    ],
)
def test_keys_that_cannot_be_are_refused_by_column(user: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        clicks_of(user=user)


@pytest.mark.parametrize(
    ("user", "received"),
    [
        ([1, 2**64], "list .*too large"),
        (np.array(["a", 1], object), "ndarray"),
        (np.ones(2, complex), "ndarray"),
        (np.ones((2, 1, 1), np.int64), "ndarray"),
        (np.int64(3), "int64"),
    ],
)
def test_arrays_that_arrow_refuses_are_named(user: Any, received: str) -> None:
    with pytest.raises(ConfigError, match=rf"^Column 'user' of a table must be .*: {received}"):
        clicks_of(user=user)


def test_a_large_table_is_checked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_columns, "_PART_ROWS", 3)
    rows = {"label": [0] * 8, "user": list(range(8)), "tags": [[n] * (n % 3) for n in range(8)]}
    batches = Batches.of(rows, label="label", batch_size=8, shuffle=False, shard=Shard(0, 1))
    (clicks,) = batches.batches()
    assert clicks.features["user"].tolist() == rows["user"]
    assert clicks.features["tags"].tolist() == rows["tags"]
    rows["user"][6] = None
    with pytest.raises(DataError, match="The table, column 'user', row 6: expected a key"):
        Batches.of(rows, label="label", batch_size=8, shard=Shard(0, 1))
