from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tfhybrid
from tests.unit.store.adagrad_table import DIM, adagrad_table, block
from tfhybrid.errors import ConfigError, StoreError
from tfhybrid.store import RowBlock, Table
from tfhybrid.store.table_memory import TableShape, bytes_of

# Of a slot with Adagrad's state.
SLOT_BYTES = 16 + 2 * 4 * DIM


def file_table(path: Path, slots: int, name: str = "item") -> Table:
    storage = tfhybrid.FileTier(path, cache_bytes=slots * SLOT_BYTES)
    return adagrad_table(name, storage)


@pytest.mark.usefixtures("job")
def test_rows_that_do_not_fit_in_the_cache_are_read_back(tmp_path) -> None:
    table = file_table(tmp_path, slots=7)
    rows = block(np.random.default_rng(1).permutation(1000) - 500)
    table.writer.write_rows(rows)
    np.testing.assert_array_equal(table.lookup(rows.keys), rows.embeddings)
    read = table.read(rows.keys[::3], states=True)
    np.testing.assert_array_equal(read.embeddings, rows.embeddings[::3])
    np.testing.assert_array_equal(read.states, rows.states[::3])
    stats = table.stats(count_nan=True)
    assert stats.rows == 1000
    assert stats.nan_rows == 0
    assert stats.written_rows == 993
    assert stats.cache_bytes <= 8192 < stats.file_bytes
    digest = table.digest()
    in_memory = Table("memory", tfhybrid.TableConfig(DIM))
    optimizer = tfhybrid.optimizers.Adagrad()
    in_memory.set_optimizer(optimizer.native(), optimizer.state_shape(DIM))
    in_memory.writer.write_rows(rows)
    assert in_memory.digest() == digest


@pytest.mark.usefixtures("job")
def test_records_of_removed_rows_are_used_again(tmp_path) -> None:
    table = file_table(tmp_path, slots=7)
    rows = block(np.arange(64))
    table.writer.write_rows(rows)
    file_bytes = table.stats().file_bytes
    for _ in range(3):
        table.writer.remove_keys(rows.keys[::2])
        assert table.rows == 32
        np.testing.assert_array_equal(table.lookup(rows.keys[1::2]), rows.embeddings[1::2])
        table.writer.write_rows(rows)
        np.testing.assert_array_equal(table.lookup(rows.keys), rows.embeddings)
    assert table.stats().file_bytes == file_bytes


@pytest.mark.usefixtures("job")
def test_an_index_costs_at_most_twelve_bytes_a_key(tmp_path) -> None:
    table = file_table(tmp_path, slots=2000)
    for rows in (5_000, 11_000, 23_000, 50_000):
        keys = np.arange(table.rows, rows)
        table.writer.write_rows(block(keys))
        stats = table.stats()
        assert stats.index_bytes <= 12 * rows + 4096
    np.testing.assert_array_equal(table.lookup(keys), block(keys).embeddings)


@pytest.mark.usefixtures("job")
def test_what_a_table_takes_is_known_beforehand(tmp_path) -> None:
    table = file_table(tmp_path, slots=500)
    for rows in (64, 5_000, 30_000):
        for first in range(table.rows, rows, 500):
            table.writer.write_rows(block(np.arange(first, min(first + 500, rows))))
        shape = TableShape(rows, DIM, state_floats=DIM, cache_bytes=500 * SLOT_BYTES)
        planned, stats = bytes_of(shape), table.stats()
        assert planned.index == stats.index_bytes
        assert planned.total == stats.bytes
        assert planned.file == stats.file_bytes
        assert planned.peak >= planned.total


@pytest.mark.usefixtures("job")
def test_another_optimizer_is_refused_where_there_are_rows(tmp_path) -> None:
    table = file_table(tmp_path, slots=7)
    table.writer.write_rows(block([1, 2]))
    optimizer = tfhybrid.optimizers.Adam()
    with pytest.raises(StoreError, match="has 2 rows"):
        table.set_optimizer(optimizer.native(), optimizer.state_shape(DIM))
    with pytest.raises(StoreError, match="has 2 rows"):
        table._job.engine.forget_optimizer("item")
    table.writer.clear()
    table.set_optimizer(optimizer.native(), optimizer.state_shape(DIM))
    rows = block([1, 2])
    table.writer.write_rows(RowBlock(rows.keys, rows.embeddings, None))
    np.testing.assert_array_equal(table.lookup(rows.keys), rows.embeddings)


@pytest.mark.usefixtures("job")
def test_a_directory_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"a directory that exists.*nowhere"):
        file_table(tmp_path / "nowhere", slots=7)


@pytest.mark.usefixtures("job")
def test_the_files_are_their_owner_s_alone(tmp_path) -> None:
    file_table(tmp_path, slots=7).writer.write_rows(block([1]))
    (directory,) = tmp_path.iterdir()
    assert directory.stat().st_mode & 0o777 == 0o700
    (file,) = directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    tfhybrid.shutdown()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("cache_bytes", [0, -1, 1.5, "1 GiB", None])
def test_caches_that_cannot_be_are_refused(cache_bytes) -> None:
    with pytest.raises(ConfigError, match="cache_bytes must be a whole number"):
        tfhybrid.FileTier("/tmp", cache_bytes=cache_bytes)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"storage": "/tmp"}, "storage must be a tfhybrid.FileTier"),
        ({"eviction": tfhybrid.Eviction(min_norm=0.5)}, "does not support eviction by min_norm"),
        ({"lazy": False}, "read and write all of it"),
    ],
)
def test_recipes_that_cannot_be_are_refused(options, told) -> None:
    with pytest.raises(ConfigError, match=told):
        tfhybrid.TableConfig(4, **{"storage": tfhybrid.FileTier("/tmp"), **options})


def test_a_relative_path_is_that_of_the_working_directory(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert tfhybrid.FileTier("tables").native == (str(tmp_path / "tables"), 256 * 2**20)
