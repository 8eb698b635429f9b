"""Loading tables from binary files of sparse parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfhybrid
from tfhybrid.errors import ConfigError, CorruptFileError, StoreError
from tfhybrid.store import RecordFile, Table

pytestmark = pytest.mark.usefixtures("job")

DIM = 3
INT64 = np.iinfo(np.int64)
KEYS = [7, 0, -1, INT64.min, INT64.max]
RECORD = np.dtype([("clicks", "<u2"), ("key", "<i8"), ("pad", "V3"), ("embedding", "<f4", (DIM,))])


@pytest.fixture
def table() -> Table:
    table = Table("item", tfhybrid.TableConfig(DIM))
    table.set_optimizer(tfhybrid.optimizers.Adagrad().native(), (1, table.dim))
    return table


def records(keys: list[int]) -> np.ndarray:
    array = np.zeros(len(keys), RECORD)
    array["key"] = keys
    array["embedding"] = np.arange(len(keys) * DIM).reshape(-1, DIM)
    return array


def write(path: Path, content: bytes) -> RecordFile:
    path.write_bytes(b"head" + content)
    return RecordFile(path, RECORD, header_bytes=4)


def test_all_rows_are_loaded(table, tmp_path) -> None:
    array = records(KEYS)
    assert table.load(write(tmp_path / "rows.bin", array.tobytes())) == len(KEYS)
    np.testing.assert_array_equal(table.lookup(KEYS), array["embedding"])
    (block,) = table.blocks(states=True)
    assert np.all(block.states == np.float32(0.1))


def test_a_file_without_records_loads_nothing(table, tmp_path) -> None:
    assert table.load(write(tmp_path / "rows.bin", b"")) == 0


@pytest.mark.parametrize("size", [3, 4 + RECORD.itemsize - 1, 4 + 2 * RECORD.itemsize + 1])
def test_a_file_that_is_cut_short_is_refused(table, tmp_path, size) -> None:
    file = write(tmp_path / "rows.bin", records(KEYS).tobytes())
    with (tmp_path / "rows.bin").open("r+b") as stream:
        stream.truncate(size)
    with pytest.raises(CorruptFileError, match=r"rows.bin is cut short"):
        table.load(file)
    assert table.stats().rows == 0


def test_a_key_twice_is_refused(table, tmp_path) -> None:
    with pytest.raises(CorruptFileError, match=r"rows.bin holds keys twice"):
        table.load(write(tmp_path / "rows.bin", records([7, 8, 7]).tobytes()))
    assert table.stats().rows == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_embedding_that_is_not_finite_is_named(table, tmp_path, bad) -> None:
    array = records(KEYS)
    array["embedding"][3:, 1] = bad
    message = (
        rf"rows.bin, record 3: expected 3 finite numbers of float32. Received: -?{abs(bad)} at"
    )
    with pytest.raises(CorruptFileError, match=message):
        table.load(write(tmp_path / "rows.bin", array.tobytes()))
    assert table.stats().rows == 0


def test_a_table_that_has_rows_is_refused(table, tmp_path) -> None:
    file = write(tmp_path / "rows.bin", records(KEYS).tobytes())
    table.load(file)
    with pytest.raises(ConfigError, match=r"empty table. Received: table 'item' with 5 rows"):
        table.load(file)
    assert table.stats().rows == 5


def test_a_missing_file_is_named(table, tmp_path) -> None:
    with pytest.raises(StoreError, match=r"nowhere.bin"):
        table.load(RecordFile(tmp_path / "nowhere.bin", RECORD))


@pytest.mark.parametrize(
    ("dtype", "field"),
    [
        ([("embedding", "<f4", (DIM,))], "key"),
        ([("key", "<i4"), ("embedding", "<f4", (DIM,))], "key"),
        ([("key", ">i8"), ("embedding", "<f4", (DIM,))], "key"),
        ([("key", "<i8")], "embedding"),
        ([("key", "<i8"), ("embedding", "<f4", (DIM + 1,))], "embedding"),
        ([("key", "<i8"), ("embedding", "<f8", (DIM,))], "embedding"),
    ],
)
def test_records_that_do_not_fit_are_refused(table, tmp_path, dtype, field) -> None:
    (tmp_path / "rows.bin").touch()
    with pytest.raises(ConfigError, match=f"must have a field '{field}'"):
        table.load(RecordFile(tmp_path / "rows.bin", np.dtype(dtype)))


def test_a_header_of_negative_length_is_refused(table, tmp_path) -> None:
    (tmp_path / "rows.bin").touch()
    with pytest.raises(ConfigError, match="header of -1 bytes"):
        table.load(RecordFile(tmp_path / "rows.bin", RECORD, header_bytes=-1))
