"""Rows that other programs wrote, loaded into a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

import tfhybrid
from tfhybrid.checkpoint.sources import (
    BLOCK_ROWS,
    ArrayRows,
    NumpyRows,
    ParquetRows,
    TfraRows,
    VariableRows,
)
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.store import Table

pytestmark = pytest.mark.usefixtures("job")

DIM = 3
INT64 = np.iinfo(np.int64)
KEYS = np.array([0, -1, 7, INT64.min, INT64.max])
EMBEDDINGS = np.arange(15, dtype=np.float32).reshape(5, DIM)
STATES = EMBEDDINGS[:, np.newaxis] + 0.5


@pytest.fixture
def table() -> Table:
    table = Table("item", tfhybrid.TableConfig(DIM))
    optimizer = tfhybrid.optimizers.Adagrad()
    table.set_optimizer(optimizer.native(), optimizer.state_shape(table.dim))
    return table


def states_of(table: Table) -> np.ndarray:
    (block,) = table.blocks(states=True)
    return block.states


def numpy_rows(path: Path, **arrays: np.ndarray) -> NumpyRows:
    np.savez(path / "rows.npz", **({"keys": KEYS, "embeddings": EMBEDDINGS} | arrays))
    return NumpyRows(path / "rows.npz")


def parquet_rows(path: Path, *, fixed: bool = True) -> ParquetRows:
    kind = pa.list_(pa.float32(), DIM) if fixed else pa.list_(pa.float64())
    columns = {"key": KEYS, "clicks": KEYS % 3, "embedding": pa.array(EMBEDDINGS.tolist(), kind)}
    pyarrow.parquet.write_table(pa.table(columns), path / "rows.parquet")
    return ParquetRows(path / "rows.parquet")


def parquet_rows_of_lists(path: Path) -> ParquetRows:
    return parquet_rows(path, fixed=False)


def array_rows(path: Path) -> ArrayRows:
    return ArrayRows(KEYS.tolist(), EMBEDDINGS.astype(np.float64))


def tfra_rows(path: Path) -> TfraRows:
    KEYS.tofile(path / "item-keys")
    EMBEDDINGS.tofile(path / "item-values")
    return TfraRows(path, "item")


@pytest.mark.parametrize(
    "write", [array_rows, numpy_rows, parquet_rows, parquet_rows_of_lists, tfra_rows]
)
def test_keys_and_embeddings_are_loaded(table, tmp_path, write: Callable) -> None:
    assert table.load(write(tmp_path)) == len(KEYS)
    np.testing.assert_array_equal(table.lookup(KEYS), EMBEDDINGS)
    np.testing.assert_array_equal(states_of(table), np.float32(0.1))


def test_states_of_arrays_are_loaded(table) -> None:
    table.load(ArrayRows(KEYS, EMBEDDINGS, STATES))
    np.testing.assert_array_equal(states_of(table), STATES)
    with pytest.raises(ConfigError, match="loaded only into an empty table"):
        table.load(ArrayRows(KEYS, EMBEDDINGS))


def test_arrays_that_do_not_fit_are_refused(table) -> None:
    with pytest.raises(DataError, match=r"ArrayRows needs keys \[n\].*Received: int64 \[5\], "):
        table.load(ArrayRows(KEYS, EMBEDDINGS[:, :2]))


@pytest.mark.parametrize("shape", [STATES.shape, EMBEDDINGS.shape])
def test_states_of_numpy_files_are_loaded(table, tmp_path, shape) -> None:
    numpy_rows(tmp_path, accumulators=STATES.reshape(shape))
    table.load(NumpyRows(tmp_path / "rows.npz", states="accumulators"))
    np.testing.assert_array_equal(states_of(table), STATES)


def test_states_of_parquet_files_are_loaded(table, tmp_path) -> None:
    states = pa.array(STATES.reshape(5, -1).tolist(), pa.list_(pa.float32()))
    columns = {"key": KEYS, "embedding": EMBEDDINGS.tolist(), "accumulator": states}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    table.load(ParquetRows(tmp_path / "rows.parquet", state="accumulator"))
    np.testing.assert_array_equal(states_of(table), STATES)


def test_more_rows_than_a_block_are_loaded(table, tmp_path) -> None:
    count = BLOCK_ROWS + 3
    keys = np.arange(count)[::-1].astype(np.int32)
    embeddings = np.repeat(keys[:, np.newaxis], DIM, axis=1).astype(np.float64)
    assert table.load(numpy_rows(tmp_path, keys=keys, embeddings=embeddings)) == count
    np.testing.assert_array_equal(table.lookup([0, 1, count - 1])[:, 0], [0, 1, count - 1])


@pytest.mark.parametrize("attribute", ["", "/.ATTRIBUTES/VARIABLE_VALUE"])
def test_variable_of_a_checkpoint_is_loaded_with_its_state(table, tmp_path, attribute) -> None:
    item = tf.Module()
    item.embeddings, item.accumulator = tf.Variable(EMBEDDINGS), tf.Variable(STATES[:, 0])
    prefix = tf.train.Checkpoint(item=item).write(str(tmp_path / "model"))
    source = VariableRows(
        prefix, f"item/embeddings{attribute}", states=["item/accumulator"], first_key=-2
    )
    assert table.load(source) == 5
    np.testing.assert_array_equal(table.lookup(np.arange(-2, 3)), EMBEDDINGS)
    np.testing.assert_array_equal(states_of(table), STATES)


def test_unknown_variable_is_named_with_those_that_there_are(table, tmp_path) -> None:
    prefix = tf.train.Checkpoint(v=tf.Variable(EMBEDDINGS)).write(str(tmp_path / "model"))
    with pytest.raises(DataError, match=r"Received: 'w'; it has .*v/.ATTRIBUTES"):
        table.load(VariableRows(prefix, "w"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"embeddings": EMBEDDINGS[:, :2]}, r"floats \[n, 3\].* Received: .*\[5, 2\]"),
        ({"embeddings": EMBEDDINGS[:4]}, r"Received: int64 \[5\], float32 \[4, 3\]"),
        ({"embeddings": EMBEDDINGS.astype(np.int32)}, "Received: .*int32"),
        ({"keys": KEYS.astype(np.float64)}, "Received: float64"),
        ({"keys": KEYS.astype(np.uint64)}, "Received: uint64"),
        ({"keys": KEYS[:, np.newaxis]}, r"Received: int64 \[5, 1\]"),
        ({"keys": np.array([1, 2, 3, 2, 5])}, "has duplicate keys: 5 rows with 4 distinct keys"),
    ],
)
def test_arrays_that_do_not_fit_leave_the_table_empty(table, tmp_path, arrays, message) -> None:
    with pytest.raises(DataError, match=message):
        table.load(numpy_rows(tmp_path, **arrays))
    assert table.rows == 0
    table.load(numpy_rows(tmp_path))


def test_arrays_of_other_names_are_named(table, tmp_path) -> None:
    np.savez(tmp_path / "rows.npz", ids=KEYS)
    with pytest.raises(DataError, match=r"Received: \['ids'\]"):
        table.load(NumpyRows(tmp_path / "rows.npz"))


def test_arrays_of_objects_are_not_unpickled(table, tmp_path) -> None:
    rows = numpy_rows(tmp_path, keys=np.array([1, "a"], object))
    with pytest.raises(DataError, match="not a file of NumPy arrays"):
        table.load(rows)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [1], "embedding": [[1.0, 2.0]]}, "needs 3 floats in each list"),
        ({"key": [1], "embedding": [None]}, "without a value in column 'embedding'"),
        ({"key": [1], "embedding": [1.0]}, "needs 3 floats in each list"),
        ({"key": ["a"], "embedding": [[1.0, 2.0, 3.0]]}, "Received: object"),
        ({"id": [1], "embedding": [[1.0, 2.0, 3.0]]}, r"Received: \['id', 'embedding'\]"),
    ],
)
def test_columns_that_do_not_fit_are_refused(table, tmp_path, columns, message) -> None:
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=message):
        table.load(ParquetRows(tmp_path / "rows.parquet"))
    assert table.rows == 0


@pytest.mark.parametrize("file", ["item-keys", "item-values"])
def test_tfra_files_that_are_cut_short_are_refused(table, tmp_path, file) -> None:
    rows = tfra_rows(tmp_path)
    content = (tmp_path / file).read_bytes()
    for cut in (1, 4, 8):
        (tmp_path / file).write_bytes(content[:-cut])
        with pytest.raises(DataError, match=r"is truncated|needs 3 floats"):
            table.load(rows)


@pytest.mark.parametrize("source", [NumpyRows, ParquetRows, lambda path: VariableRows(path, "v")])
def test_files_of_another_kind_are_refused(table, tmp_path, source) -> None:
    (tmp_path / "rows").write_bytes(b"no such format" * 100)
    with pytest.raises(DataError, match="rows"):
        table.load(source(tmp_path / "rows"))


def test_files_that_tfra_wrote_are_read() -> None:
    """tfra/write.py says how they were made."""
    source = TfraRows(Path(__file__).with_name("tfra"), "item_mht_1of1_rank0_size1")
    (block,) = source.blocks(4, (1, 4))
    found = dict(zip(block.keys.tolist(), block.embeddings.tolist(), strict=True))
    keys = [0, -1, 5, 2**62, -(2**63) + 5, 77]
    assert found == {key: [4.0 * i + c for c in range(4)] for i, key in enumerate(keys)}
    assert block.states is None
