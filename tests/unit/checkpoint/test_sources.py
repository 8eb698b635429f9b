"""Rows that other programs wrote, loaded into a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        ({"embeddings": EMBEDDINGS[0, 0]}, r"Received: int64 \[5\], float32 \[\]"),
        (
            {"embeddings": EMBEDDINGS.astype(str)},
            "'embeddings', row 0: .*Received: '0.0' at index 0",
        ),
        ({"keys": KEYS.astype(np.float64)}, r"'keys', row 3: expected a key below 2\^53"),
        ({"keys": KEYS.astype(np.uint64)}, "'keys', row 1: .*Received: 18446744073709551615"),
        ({"keys": KEYS > 0}, "'keys', row 0: .*Received: False"),
        ({"keys": KEYS[:, np.newaxis]}, r"Received: int64 \[5, 1\]"),
        (
            {"keys": np.array([1, 2, 3, 2, 5])},
            "has duplicate keys: 5 rows with 4 distinct keys. Received: key 2 in rows 1 and 3",
        ),
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
        ({"key": [1], "embedding": [[1.0, 2.0]]}, "'embedding', row 0: .*Received: 2 numbers"),
        ({"key": [1], "embedding": [None]}, "'embedding', row 0: .*Received: None"),
        ({"key": [1], "embedding": [1.0]}, "expected 3 finite numbers of float32. Received: 1.0"),
        ({"key": ["a"], "embedding": [[1.0, 2.0, 3.0]]}, "'key', row 0: .*Received: 'a'"),
        ({"key": [1, None], "embedding": [[1.0, 2.0, 3.0]] * 2}, "'key', row 1: .*Received: None"),
        ({"id": [1], "embedding": [[1.0, 2.0, 3.0]]}, r"Received: \['id', 'embedding'\]"),
    ],
)
def test_columns_that_do_not_fit_are_refused(table, tmp_path, columns, message) -> None:
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=message):
        table.load(ParquetRows(tmp_path / "rows.parquet"))
    assert table.rows == 0


BAD_NUMBERS = [np.nan, np.inf, -np.inf, 1e39, -1e300]


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize("row", [0, BLOCK_ROWS + 1])
def test_first_row_that_is_not_finite_is_named(table, tmp_path, bad, row) -> None:
    count = BLOCK_ROWS + 2
    numbers = np.zeros((count, DIM))
    numbers[row:, 1] = bad
    columns = {"keys": np.arange(count), "embeddings": numbers}
    place = re.escape(f"rows.npz, array 'embeddings', row {row}: expected 3 finite numbers")
    received = re.escape(f"Received: {bad} at index 1.")
    with pytest.raises(DataError, match=rf"{place} of float32. {received}"):
        table.load(numpy_rows(tmp_path, **columns))
    with pytest.raises(DataError, match=rf"ArrayRows, states, row {row}: .*{received}"):
        table.load(ArrayRows(np.arange(count), np.zeros((count, DIM)), numbers))
    assert table.rows == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_every_other_source_names_the_row(table, tmp_path, bad) -> None:
    numbers = EMBEDDINGS.copy()
    numbers[3, 2] = bad
    numbers.tofile(tmp_path / "item-values")
    KEYS.tofile(tmp_path / "item-keys")
    prefix = tf.train.Checkpoint(v=tf.Variable(numbers)).write(str(tmp_path / "model"))
    columns = {"key": KEYS, "embedding": numbers.tolist()}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    sources = {
        "file 'item-values', row 3": TfraRows(tmp_path, "item"),
        "variable 'v', row 3": VariableRows(prefix, "v"),
        "column 'embedding', row 3": ParquetRows(tmp_path / "rows.parquet"),
    }
    for place, source in sources.items():
        with pytest.raises(DataError, match=f"{place}: .*Received: {bad} at index 2"):
            table.load(source)
    assert table.rows == 0


@pytest.mark.parametrize(
    ("keys", "embeddings", "message"),
    [
        ([1, True], np.zeros((2, DIM)), "keys, row 1: .*Received: True"),
        ([1, 7.5], np.zeros((2, DIM)), "keys, row 1: .*Received: 7.5"),
        ([1, None], np.zeros((2, DIM)), "keys, row 1: .*Received: None"),
        ([1, 2**63], np.zeros((2, DIM)), "keys, row 1: .*Received: 9223372036854775808"),
        ([1, 2.0**53], np.zeros((2, DIM)), r"keys, row 1: .*2\^53"),
        (np.float32([1, 2**24]), np.zeros((2, DIM)), r"keys, row 1: .*2\^24"),
        (np.ma.masked_equal([1, 2], 2), np.zeros((2, DIM)), "keys, row 1: .*Received: None"),
        (pa.array([1, None]), np.zeros((2, DIM)), "keys, row 1: .*Received: None"),
        ([1, 2], [[1.0, 2.0, 3.0], [1.0, 2.0]], "embeddings, row 1: .*Received: 2 numbers"),
        ([1, 2], [[1.0, 2.0, 3.0], [1.0, "2", 3.0]], "row 1: .*Received: '2' at index 1"),
        ([1, 2], [[1.0, 2.0, 3.0], None], "embeddings, row 1: .*Received: None"),
        (5, [[1.0, 2.0, 3.0]], r"Received: int64 \[\], "),
        ([1], 2.0, r"Received: list \[1\], float64 \[\]"),
        ([1, 2], np.zeros((3, DIM)), r"Received: list \[2\], float64 \[3, 3\]"),
    ],
)
def test_bad_rows_in_memory_are_named(table, keys, embeddings, message) -> None:
    with pytest.raises(DataError, match=message):
        table.load(ArrayRows(keys, embeddings))
    assert table.rows == 0


def test_the_first_bad_row_is_named_whatever_is_bad_in_it(table) -> None:
    embeddings = np.zeros((3, DIM))
    embeddings[1] = np.nan
    with pytest.raises(DataError, match=r"ArrayRows, embeddings, row 1: .*nan at index 0"):
        table.load(ArrayRows([1, 2, 2.5], embeddings))


@pytest.mark.parametrize(
    ("keys", "embeddings"),
    [
        (KEYS.astype(object), EMBEDDINGS.tolist()),
        (pa.array(KEYS), pa.array(EMBEDDINGS.tolist(), pa.list_(pa.float32(), DIM))),
        (KEYS, EMBEDDINGS.astype(np.int16)),
        (KEYS[::-1][::-1], np.asfortranarray(EMBEDDINGS)),
        (KEYS.astype(">i8"), EMBEDDINGS.astype(">f8")),
    ],
)
def test_rows_in_memory_may_have_any_form(table, keys, embeddings) -> None:
    assert table.load(ArrayRows(keys, embeddings)) == 5
    np.testing.assert_array_equal(table.lookup(KEYS), EMBEDDINGS)


@pytest.mark.parametrize("dim", [1, 2])
def test_sources_without_rows_and_of_few_numbers(dim) -> None:
    sources: list[tuple[Any, ...]] = [
        ([], []),
        (np.empty(0), np.empty((0, dim))),
        (pa.array([], pa.int64()), pa.array([], pa.list_(pa.float32()))),
        ([1], [[2.0] * dim]),
        ([1.0], [[True] * dim], np.empty((1, 0, dim))),
    ]
    for number, arrays in enumerate(sources):
        table = Table(f"item {number}", tfhybrid.TableConfig(dim))
        table.set_optimizer(tfhybrid.optimizers.SGD(0.1).native(), (0, dim))
        assert table.load(ArrayRows(*arrays)) == len(arrays[0])


def test_damaged_variables_are_told_with_their_name(table, tmp_path) -> None:
    prefix = tf.train.Checkpoint(v=tf.Variable(EMBEDDINGS)).write(str(tmp_path / "model"))
    (data,) = tmp_path.glob("*.data-*")
    content = data.read_bytes()
    data.write_bytes(content[:5] + bytes([content[5] ^ 1]) + content[6:])
    with pytest.raises(DataError, match=r"model, variable 'v': expected its values\. Received: "):
        table.load(VariableRows(prefix, "v"))
    data.unlink()
    with pytest.raises(DataError, match="model"):
        table.load(VariableRows(prefix, "v"))


def test_variables_of_other_shapes_and_types_are_refused(table, tmp_path) -> None:
    module = tf.Module()
    module.rows, module.scalar = tf.Variable(EMBEDDINGS), tf.Variable(1.0)
    module.short, module.narrow = tf.Variable([1.0]), tf.Variable(tf.cast(EMBEDDINGS, tf.bfloat16))
    prefix = tf.train.Checkpoint(m=module).write(str(tmp_path / "model"))
    for names, message in (
        (["m/scalar"], r"float32 \[\]"),
        (["m/rows", "m/rows", "m/short"], r"states of one shape.*Received: \[\[5, 3\], \[1\]\]"),
        (["m/rows", "m/scalar"], r"Received: .*float32 \[\]"),
    ):
        with pytest.raises(DataError, match=message):
            table.load(VariableRows(prefix, names[0], states=names[1:]))
    with pytest.raises(DataError, match=r"keys of int64 for its 5 rows. Received: first_key=9223"):
        table.load(VariableRows(prefix, "m/rows", first_key=2**63 - 4))
    for first_key in (2**63, 0.5, True, None):
        with pytest.raises(ConfigError, match="first_key must be a whole number of int64"):
            VariableRows(prefix, "m/rows", first_key=first_key)
    assert table.load(VariableRows(prefix, "m/narrow", first_key=2**63 - 5)) == 5


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


def test_checksums_of_parquet_pages_are_compared(table, tmp_path) -> None:
    path = tmp_path / "rows.parquet"
    columns = {"key": [7, 0x1122334455667788], "embedding": EMBEDDINGS[:2].tolist()}
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pyarrow.parquet.write_table(pa.table(columns), path, write_page_checksum=True, **options)
    content = bytearray(path.read_bytes())
    content[content.index(bytes.fromhex("8877665544332211"))] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"rows\.parquet cannot be read as Parquet: .*(?i:crc)"):
        table.load(ParquetRows(path))
    assert table.rows == 0


def test_files_that_tfra_wrote_are_read() -> None:
    """tfra/write.py says how they were made."""
    source = TfraRows(Path(__file__).with_name("tfra"), "item_mht_1of1_rank0_size1")
    (block,) = source.blocks(4, (1, 4))
    found = dict(zip(block.keys.tolist(), block.embeddings.tolist(), strict=True))
    keys = [0, -1, 5, 2**62, -(2**63) + 5, 77]
    assert found == {key: [4.0 * i + c for c in range(4)] for i, key in enumerate(keys)}
    assert block.states is None
