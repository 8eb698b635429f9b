"""The order in which a restore checks, before it changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tfhybrid import checkpoint
from tfhybrid.checkpoint.stored import folder_of
from tfhybrid.checkpoint.table_file import file_name
from tfhybrid.data import Position
from tfhybrid.errors import CheckpointError

ROWS = 1000


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    tfhybrid.shutdown()


def started(seed: int = 0) -> tuple[keras.Model, tfhybrid.store.Table]:
    tfhybrid.init(seed=seed)
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="item")
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, layer(inputs))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    return model, layer.table


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model, table = started()
    keys = np.arange(ROWS)
    table.load(checkpoint.ArrayRows(keys, np.ones((ROWS, 4), np.float32)))
    checkpoint.save(model, tmp_path, Position(1, 0))
    tfhybrid.shutdown()
    return tmp_path


def test_what_does_not_fit_is_refused_before_files_are_read(saved: Path) -> None:
    folder = folder_of(saved, checkpoint.steps(saved)[-1])
    (folder / file_name("item", 0)).write_bytes(b"damaged")
    model, table = started(seed=1)
    with pytest.raises(CheckpointError, match="was saved with seed 0"):
        checkpoint.restore(model, saved)
    tfhybrid.shutdown()
    model, table = started()
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoint.restore(model, saved)
    assert table.rows == 0
