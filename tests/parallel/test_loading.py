"""Rows of other programs, loaded by all ranks together: the same on every rank, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

import tfhybrid
from tfhybrid import distributed
from tfhybrid.checkpoint import ArrayRows, NumpyRows, ParquetRows, TfraRows, VariableRows
from tfhybrid.errors import DataError, StoreError
from tfhybrid.store import Table

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]

DIM = 3
KEYS = np.arange(-50, 50)
EMBEDDINGS = np.random.default_rng(3).normal(size=(100, DIM)).astype(np.float32)


def new_table(name: str) -> Table:
    """Returns a table without optimizer state, so that digests of all ranks are of the same."""
    table = Table(name, tfhybrid.TableConfig(DIM))
    optimizer = tfhybrid.optimizers.SGD(0.1)
    table.set_optimizer(optimizer.native(), optimizer.state_shape(DIM))
    return table


def arrays(_directory: Path) -> ArrayRows:
    return ArrayRows(KEYS, EMBEDDINGS)


def numpy_file(directory: Path) -> NumpyRows:
    np.savez(directory / "rows.npz", keys=KEYS, embeddings=EMBEDDINGS)
    return NumpyRows(directory / "rows.npz")


def parquet(directory: Path) -> ParquetRows:
    columns = {"key": KEYS, "embedding": EMBEDDINGS.tolist()}
    pyarrow.parquet.write_table(pa.table(columns), directory / "rows.parquet")
    return ParquetRows(directory / "rows.parquet")


def variable(directory: Path) -> VariableRows:
    module = tf.Module()
    module.v = tf.Variable(EMBEDDINGS)
    prefix = tf.train.Checkpoint(item=module).write(str(directory / "model"))
    return VariableRows(prefix, "item/v", first_key=-50)


def tfra(directory: Path) -> TfraRows:
    KEYS.tofile(directory / "item-keys")
    EMBEDDINGS.tofile(directory / "item-values")
    return TfraRows(directory, "item")


def records(directory: Path) -> tfhybrid.checkpoint.RecordFile:
    dtype = np.dtype([("key", "<i8"), ("clicks", "<u4"), ("embedding", "<f4", (DIM,))])
    rows = np.zeros(len(KEYS), dtype)
    rows["key"], rows["embedding"] = KEYS, EMBEDDINGS
    rows.tofile(directory / "rows.bin")
    return tfhybrid.checkpoint.RecordFile(directory / "rows.bin", dtype)


@pytest.mark.parametrize("write", [arrays, numpy_file, parquet, variable, tfra, records])
def test_every_source_gives_all_ranks_the_same_rows(tmp_path: Path, write: Callable) -> None:
    """Each rank writes a file of its own, as on hosts that share no disk."""
    table = new_table("item")
    assert table.load(write(tmp_path)) == len(KEYS)
    np.testing.assert_array_equal(table.lookup(KEYS), EMBEDDINGS)
    wanted = new_table("wanted")
    wanted.load(ArrayRows(KEYS[::-1], EMBEDDINGS[::-1]))
    digests = distributed.allgather_object((table.digest(), wanted.digest()))
    assert {digest for pair in digests for digest in pair} == {table.digest()}


def test_a_leader_that_cannot_load_is_told_on_all_ranks(tmp_path: Path) -> None:
    source = numpy_file(tmp_path)
    if distributed.rank() == 0:
        np.savez(tmp_path / "rows.npz", keys=np.zeros(2, np.int64), embeddings=EMBEDDINGS[:2])
    table = new_table("item")
    with pytest.raises((DataError, StoreError), match="has duplicate keys"):
        table.load(source)
    assert table.rows == 0
