"""What keys without a row read outside of training, after the restore of a checkpoint."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import checkpoint
from tfhybrid.checkpoint.stored import folder_of
from tfhybrid.data import Position

NEW = np.array([[70], [-8]])


def started(unseen: str | None) -> keras.Model:
    tfhybrid.init()
    item = keras.Input((1,), dtype="int64", name="item")
    embedded = tfhybrid.layers.Embedding(tfhybrid.TableConfig(3, unseen=unseen), table="items")
    model = keras.Model({"item": item}, keras.layers.Flatten()(embedded(item)))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    """Checkpoints of models with each setting, by setting."""
    folders = {}
    for unseen in (None, "initial", "zeros"):
        folders[unseen] = tmp_path_factory.mktemp("checkpoints")
        model = started(unseen)
        model.fit({"item": np.arange(4)[:, np.newaxis]}, np.ones((4, 3)), verbose=0)
        checkpoint.save(model, folders[unseen], Position(0, 1))
        tfhybrid.shutdown()
        keras.backend.clear_session()
    return folders


def entry_of(directory: Path) -> dict:
    """Returns the table's entry in the manifest of a checkpoint."""
    (step,) = checkpoint.steps(directory)
    manifest = Path(folder_of(directory, step)) / "manifest.json"
    return json.loads(manifest.read_text())["tables"]["items"]


@pytest.mark.parametrize("then", [None, "initial", "zeros"])
@pytest.mark.parametrize("now", [None, "initial", "zeros"])
def test_a_table_reads_what_it_read_unless_its_settings_say_otherwise(
    saved: dict[str | None, Path], caplog, then: str | None, now: str | None
) -> None:
    """Files have the field only for zeros: those of older versions have none."""
    assert entry_of(saved[then]).get("unseen") == (None if then == "initial" else "zeros")
    model = started(now)
    (table,) = model.layers[1].tables.values()
    with caplog.at_level(logging.INFO, "tfhybrid.store"):
        checkpoint.restore(model, saved[then])
    expected = now or then or "zeros"
    assert table.unseen == expected
    found = model.predict({"item": NEW}, verbose=0)
    wanted = table.lookup(NEW[:, 0]) * (expected == "initial")
    np.testing.assert_array_equal(found, wanted)
    assert ("read their initial values, as in" in caplog.text) == (
        now is None and then == "initial"
    )
    with tf.GradientTape():
        np.testing.assert_array_equal(model({"item": tf.constant(NEW)}), table.lookup(NEW[:, 0]))
    tfhybrid.shutdown()
    keras.backend.clear_session()
