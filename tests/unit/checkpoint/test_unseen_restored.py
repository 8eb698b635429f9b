"""What keys without a row read outside of training, after the restore of a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping
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
SETTINGS = (None, "initial", "zeros")
TABLES = {f"{then}-then-{now}": (then, now) for then in SETTINGS for now in SETTINGS}


def started(unseen: Mapping[str, str | None]) -> keras.Model:
    """Returns a compiled model in a job of its own.

    Args:
        unseen: What keys without a row read outside of training, by table.
    """
    tfhybrid.init()
    item = keras.Input((1,), dtype="int64", name="item")
    outputs = {}
    for table, of_table in unseen.items():
        config = tfhybrid.TableConfig(3, unseen=of_table)
        embedded = tfhybrid.layers.Embedding(config, table=table)(item)
        outputs[table] = keras.layers.Flatten()(embedded)
    model = keras.Model({"item": item}, outputs)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a model with all tables, as they are then."""
    folder = tmp_path_factory.mktemp("checkpoints")
    model = started({name: then for name, (then, _) in TABLES.items()})
    labels = dict.fromkeys(TABLES, np.ones((4, 3)))
    model.fit({"item": np.arange(4)[:, np.newaxis]}, labels, verbose=0)
    checkpoint.save(model, folder, Position(0, 1))
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return folder


@dataclasses.dataclass
class Restored:
    """What a model reads that is restored with the settings of now."""

    messages: list[str]
    tables: dict[str, tfhybrid.Table]
    predicted: dict[str, np.ndarray]
    trained: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def restored(saved: Path) -> Iterator[Restored]:
    model = started({name: now for name, (_, now) in TABLES.items()})
    tables = {
        table.name: table
        for layer in model.layers
        for table in getattr(layer, "tables", {}).values()
    }
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    log = logging.getLogger("tfhybrid.store")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        checkpoint.restore(model, saved)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    predicted = model.predict({"item": NEW}, verbose=0)
    with tf.GradientTape():
        trained = {name: np.array(of_table) for name, of_table in model({"item": NEW}).items()}
    messages = [record.getMessage() for record in records]
    yield Restored(messages, tables, predicted, trained)
    tfhybrid.shutdown()
    keras.backend.clear_session()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_reads_what_it_read_unless_its_settings_say_otherwise(
    saved: Path, restored: Restored, name: str
) -> None:
    """Files have the field only for zeros: those of older versions have none."""
    then, now = TABLES[name]
    (step,) = checkpoint.steps(saved)
    manifest = json.loads((Path(folder_of(saved, step)) / "manifest.json").read_text())
    entry = manifest["tables"][name]
    assert entry.get("unseen") == (None if then == "initial" else "zeros")
    table = restored.tables[name]
    expected = now or then or "zeros"
    assert table.unseen == expected
    initial = table.lookup(NEW[:, 0])
    np.testing.assert_array_equal(restored.predicted[name], initial * (expected == "initial"))
    np.testing.assert_array_equal(restored.trained[name], initial)
    told = [each for each in restored.messages if "read their initial values, as in" in each]
    assert any(f"'{name}'" in each for each in told) == (now is None and then == "initial")
