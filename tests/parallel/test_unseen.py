"""What keys without a row read outside of training, on all ranks."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.resuming_run import crash
from tfhybrid import checkpoint, distributed, export, metrics
from tfhybrid.data import Position

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]

DIM = 3


@pytest.mark.parametrize("placement", [tfhybrid.Replicated(), tfhybrid.Sharded()])
@pytest.mark.parametrize("unseen", ["zeros", "initial"])
def test_all_ranks_evaluate_and_export_the_same(
    unseen: str, placement, tmp_path: Path, caplog
) -> None:
    """Each rank trains keys of its own, and evaluates those of all ranks and some new ones."""
    rank, size = tfhybrid.rank(), tfhybrid.size()
    config = tfhybrid.TableConfig(
        DIM, optimizer=tfhybrid.optimizers.SGD(1.0), unseen=unseen, placement=placement
    )
    item = keras.Input((1,), dtype="int64", name="item")
    layer = tfhybrid.layers.Embedding(config, table="items")
    logits = keras.layers.Lambda(lambda rows: tf.reduce_sum(rows, axis=[1, 2])[:, tf.newaxis])
    model = keras.Model({"item": item}, logits(layer(item)))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    mine = np.arange(4) + 10 * rank
    model.fit({"item": mine[:, np.newaxis]}, np.ones(4), batch_size=4, verbose=0)
    trained = np.concatenate([np.arange(4) + 10 * other for other in range(size)])
    new = np.array([-7, 5, 2**63 - 1])
    keys = np.concatenate([trained, new])
    table = layer.table
    assert table.all_rows == len(trained)
    rows = table.lookup(keys)
    if unseen == "zeros":
        rows[len(trained) :] = 0
    expected = rows.sum(axis=1, keepdims=True)
    inputs = {"item": keys[:, np.newaxis]}
    close = {"rtol": 0, "atol": 1e-6}
    np.testing.assert_allclose(model.predict(inputs, verbose=0), expected, **close)
    labels = (np.arange(len(keys)) % 2).astype(np.float32)
    with caplog.at_level(logging.INFO, "tfhybrid.metrics"):
        scores = metrics.evaluate(model, [(inputs, labels[:, np.newaxis])])
    assert scores["auc"] == metrics.auc(labels, expected[:, 0])
    share = f"{100 * len(new) / len(keys):.2f} % of {size * len(keys)} keys had no row"
    assert (share in caplog.text) == (rank == 0)
    assert table.all_rows == len(trained)
    folder = export.saved_model(model, distributed.broadcast_object(tmp_path))
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    (served,) = signature(item=tf.constant(inputs["item"])).values()
    np.testing.assert_allclose(served, expected, **close)


def started(unseen: str | None) -> keras.Model:
    tfhybrid.init("unseen-in-memory", resume="memory")
    item = keras.Input((1,), dtype="int64", name="item")
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(DIM, unseen=unseen), table="items")
    model = keras.Model({"item": item}, keras.layers.Flatten()(layer(item)))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0)), "mse")
    return model


def test_all_ranks_resumed_from_memory_read_what_the_checkpoint_says(
    directory: Path, tmp_path: Path
) -> None:
    """Also those that cannot read it."""
    tfhybrid.shutdown()
    model = started("initial")
    assert checkpoint.restore(model, directory) == Position(0, 0)
    model.train_on_batch({"item": np.arange(4)[:, np.newaxis]}, np.ones((4, DIM)))
    checkpoint.save(model, directory, Position(0, 1))
    crash()
    keras.backend.clear_session()
    model = started(None)
    seen = directory if tfhybrid.rank() == 0 else tmp_path / "not mounted"
    assert checkpoint.restore(model, seen) == Position(0, 1)
    (table,) = checkpoint.dense.tables_of(model).values()
    new = np.array([[70], [-8]])
    np.testing.assert_array_equal(model.predict({"item": new}, verbose=0), table.lookup(new[:, 0]))
