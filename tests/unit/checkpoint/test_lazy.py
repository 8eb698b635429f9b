"""Checkpoints of tables of which every row changes at each step."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tfhybrid import checkpoint
from tfhybrid.data import Position

KEYS = np.arange(40).reshape(20, 2)


@pytest.fixture(autouse=True)
def ended():
    yield
    tfhybrid.shutdown()
    keras.backend.clear_session()


def start(lazy: bool) -> tuple[keras.Model, tfhybrid.store.Table]:
    tfhybrid.shutdown()
    tfhybrid.init()
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4, lazy=lazy), name="item")
    inputs = keras.Input((2,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    return model, layer.table


@pytest.mark.parametrize("lazy", [False, True])
def test_state_stays_where_a_table_becomes_lazy_or_is_no_longer(tmp_path, lazy, caplog) -> None:
    model, table = start(not lazy)
    model.fit(KEYS, np.ones(len(KEYS)), verbose=0)
    checkpoint.save(model, tmp_path, Position(1, 0))
    saved = table.digest()
    model, table = start(lazy)
    checkpoint.restore(model, tmp_path)
    assert table.digest() == saved
    assert "dropped" not in caplog.text
    model.train_on_batch(KEYS[:1], np.ones(1))


def test_a_delta_has_the_rows_that_no_step_touched(tmp_path) -> None:
    manager = checkpoint.CheckpointManager(start(lazy=False)[0], tmp_path, full_every_saves=3)
    digests = []
    for epoch, keys in enumerate((KEYS, KEYS[:1])):
        manager.model.train_on_batch(keys, np.ones(len(keys)))
        manager.save(Position(epoch, 0))
        manager.wait()
        (table,) = checkpoint.dense.tables_of(manager.model).values()
        digests.append(table.digest())
    for step, digest in zip(manager.steps(), digests, strict=True):
        model, table = start(lazy=False)
        checkpoint.restore(model, tmp_path, step=step)
        assert (table.digest(), table.rows) == (digest, KEYS.size)
