from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tfhybrid
from tests.unit.store.adagrad_table import DIM, adagrad_table, block
from tfhybrid.errors import ConfigError, StoreError
from tfhybrid.store import RowBlock, Table

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
    with pytest.raises(ConfigError, match="cache_bytes is a whole number"):
        tfhybrid.FileTier("/tmp", cache_bytes=cache_bytes)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"storage": "/tmp"}, "storage is a tfhybrid.FileTier"),
        ({"eviction": tfhybrid.Eviction(max_rows=10)}, "neither eviction nor lazy=False"),
        ({"lazy": False}, "neither eviction nor lazy=False"),
    ],
)
def test_recipes_that_cannot_be_are_refused(options, told) -> None:
    with pytest.raises(ConfigError, match=told):
        tfhybrid.TableConfig(4, **{"storage": tfhybrid.FileTier("/tmp"), **options})


def test_a_relative_path_is_that_of_the_working_directory(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert tfhybrid.FileTier("tables").native == (str(tmp_path / "tables"), 256 * 2**20)
