"""Drawn rows through every source of `Table.load`: what arrives, and which row is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

import tfhybrid
from tests.support.ways_in.drawn_rows import (
    GOOD,
    SIZES,
    VALUES,
    Row,
    arrow_of,
    drawn,
    is_bad,
    type_of,
    verdicts_of,
)
from tests.support.ways_in.ways import WAYS
from tfhybrid.checkpoint import (
    ArrayRows,
    NumpyRows,
    ParquetRows,
    RecordFile,
    TfraRows,
    VariableRows,
    sources,
)
from tfhybrid.errors import CorruptFileError, DataError
from tfhybrid.store import Table
from tfhybrid.values import Column

pytestmark = pytest.mark.usefixtures("job")

DIM = 3
KEY = Column("key")
EMBEDDING = Column("embedding", "number", length=DIM)
NAN, INF = float("nan"), float("inf")
ROWS = {
    "key": VALUES["user"],
    "embedding": [
        *([0.1, -2.5, 3.4028235e38], [1, 2, 3], [2**24 + 1, -(2**63), 2**63], [10**30, 1, 1]),
        *([NAN, 0.0, 0.0], [0.0, INF, 0.0], [0.0, 0.0, -INF], [1e39, 0.0, 0.0], [0.0, -1e300, 0.0]),
        *([0.0, None, 0.0], [0.0, 1.0], [0.0, 1.0, 2.0, 3.0], [], None, 5, "x", ["1", 0.0, 0.0]),
        *(list(np.float32(each)) for each in ([1e-45, -0.0, 3e38], [NAN, 1, 1], [0, INF, 0])),
        *([True, False, True], [1.0, True, 0.0]),
    ],
}
FINE = {
    "key": GOOD["user"],
    "embedding": [[0.5, -1.5, 2.5], [1, 2, 3], list(np.float32([0.1, 0.2, 0.3]))],
}
NUMPY = {"bool": np.bool_}


def array_of(table: Sequence[Row], name: str, types: dict[str, str]) -> np.ndarray:
    dtype = types[name].rpartition(" ")[2]
    values = np.array([row[name] for row in table], dtype)
    return values.reshape(-1, DIM) if name == "embedding" else values


def lists(_: Path, table: list[Row], types: dict[str, str]) -> ArrayRows:
    return ArrayRows(*([row[name] for row in table] for name in ("key", "embedding")))


def arrow(_: Path, table: list[Row], types: dict[str, str]) -> ArrayRows:
    columns = arrow_of(table, types)
    return ArrayRows(columns["key"], columns["embedding"])


def numpy(_: Path, table: list[Row], types: dict[str, str]) -> ArrayRows:
    return ArrayRows(*(array_of(table, name, types) for name in ("key", "embedding")))


def archive(folder: Path, table: list[Row], types: dict[str, str]) -> NumpyRows:
    arrays = {f"{name}s": array_of(table, name, types) for name in ("key", "embedding")}
    save = np.savez_compressed if len(table) % 2 else np.savez
    save(folder / "rows.npz", **arrays)
    return NumpyRows(folder / "rows.npz")


def parquet(folder: Path, table: list[Row], types: dict[str, str]) -> ParquetRows:
    codec = ("none", "snappy", "zstd")[len(table) % 3]
    path = folder / "rows.parquet"
    pa.parquet.write_table(arrow_of(table, types), path, row_group_size=7, compression=codec)
    return ParquetRows(path)


def variable(folder: Path, table: list[Row], types: dict[str, str]) -> VariableRows:
    rows = tf.Variable(array_of(table, "embedding", types))
    return VariableRows(tf.train.Checkpoint(v=rows).write(str(folder / "model")), "v")


def tfra(folder: Path, table: list[Row], types: dict[str, str]) -> TfraRows:
    array_of(table, "key", {"key": "int64"}).tofile(folder / "item-keys")
    array_of(table, "embedding", {"embedding": "float32"}).tofile(folder / "item-values")
    return TfraRows(folder, "item")


def record(folder: Path, table: list[Row], types: dict[str, str]) -> RecordFile:
    dtype = np.dtype([("key", "<i8"), ("pad", "V3"), ("embedding", "<f4", (DIM,))])
    rows = np.zeros(len(table), dtype)
    rows["key"] = array_of(table, "key", {"key": "int64"})
    rows["embedding"] = array_of(table, "embedding", {"embedding": "float32"})
    rows.tofile(folder / "rows.bin")
    return RecordFile(folder / "rows.bin", dtype)


SOURCES: dict[str, Callable[[Path, list[Row], dict[str, str]], Any]] = {
    "`ArrayRows`, lists": lists,
    "`ArrayRows`, Arrow": arrow,
    "`ArrayRows`, NumPy": numpy,
    "`NumpyRows`": archive,
    "`ParquetRows`": parquet,
    "`VariableRows`": variable,
    "`TfraRows`": tfra,
    "`RecordFile`": record,
}


def with_different_keys(table: list[Row], of_numbers: bool) -> list[Row]:
    """Returns the rows with another key for each good one that has the key of a row before."""
    seen = set()
    for number, (row, verdict) in enumerate(zip(table, verdicts_of([KEY], table), strict=True)):
        key = number if of_numbers else verdict["key"]
        if of_numbers or key in seen:
            kind = {"float64": float, "float32": np.float32}.get(type_of(row["key"]), int)
            row["key"] = number if of_numbers else kind(100 + number)
        seen.add(key)
    return table


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", sorted(SOURCES))
def test_what_arrives_and_what_is_named(
    tmp_path: Path, monkeypatch: Any, way: str, seed: int, rows: int
) -> None:
    monkeypatch.setattr(sources, "BLOCK_ROWS", 10)
    table = Table("item", tfhybrid.TableConfig(DIM))
    table.set_optimizer(tfhybrid.optimizers.SGD(0.1).native(), (0, DIM))
    columns = [KEY, EMBEDDING]
    drawn_rows, types = drawn(WAYS[way], columns, seed, rows, ROWS, FINE)
    rest = with_different_keys(drawn_rows, way == "`VariableRows`")
    while True:
        verdicts = verdicts_of(columns, rest)
        source = SOURCES[way](tmp_path, rest, types)
        bad = next((n for n, verdict in enumerate(verdicts) if is_bad(verdict)), None)
        if bad is None:
            break
        error, place = (DataError, "row") if way != "`RecordFile`" else (CorruptFileError, "record")
        with pytest.raises(error, match=rf"(?s), {place} {bad}: expected .*Received: "):
            table.load(source)
        assert table.rows == 0
        del rest[bad]
        if way == "`VariableRows`":
            rest = with_different_keys(rest, True)
    assert table.load(source) == len(rest)
    keys = [verdict["key"] for verdict in verdicts]
    received = table.lookup(keys) if keys else np.empty((0, DIM))
    assert repr(received.tolist()) == repr([verdict["embedding"] for verdict in verdicts])
