"""A job with everything that has state: two tables, a network, its optimizer, random generators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import dropout
from tfhybrid import checkpoint, distributed
from tfhybrid._keras import state_of
from tfhybrid.data import Batches, Clicks, Position
from tfhybrid.layers.table_proxy import TableProxy

FEATURES = ["user", "item"]
STEPS_PER_EPOCH = 4
START = Position(0, 0)


def batches() -> Batches:
    rng = np.random.default_rng(3)
    samples = 64 * STEPS_PER_EPOCH * distributed.size()
    keys = {name: rng.integers(-40, 40, samples) for name in FEATURES}
    labels = ((keys["user"] + keys["item"]) % 2).astype(np.float32)
    return Batches(Clicks(keys, labels), 64, seed=5)


def start(
    optimizer: str = "adam",
    dim: int = 6,
    features: list[str] = FEATURES,
    dense_optimizer: Callable[[float], keras.optimizers.Optimizer] = keras.optimizers.Adam,
    expected_rows: int | None = None,
    storage: tfhybrid.FileTier | None = None,
) -> keras.Model:
    """Starts the job anew, as a new process would, and builds the model."""
    tfhybrid.shutdown()
    tfhybrid.init()
    keras.utils.set_random_seed(11 + distributed.rank())
    table = tfhybrid.TableConfig(
        dim=dim,
        initializer="normal",
        optimizer=optimizer,
        expected_rows=expected_rows,
        storage=storage,
    )
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in features}
    embedded = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(features, table))(inputs)
    flat = keras.layers.Concatenate()([keras.layers.Flatten()(e) for e in embedded.values()])
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.BatchNormalization()(flat))
    model = keras.Model(inputs, keras.layers.Dense(1)(dropout(0.3)(hidden)))
    model.compile(
        tfhybrid.DistributedOptimizer(dense_optimizer(0.01)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


def fit(model: keras.Model, epochs: int, position=START, callbacks=()) -> None:
    """Trains to the end of `epochs`, first the rest of the epoch that was broken off."""
    source = batches()
    options = {"verbose": 0, "callbacks": [tfhybrid.callbacks.BroadcastVariables(), *callbacks]}
    position = checkpoint.finish_epoch(model, source, position, **options)
    model.fit(
        source.dataset(position.epoch, epochs=None),
        initial_epoch=position.epoch,
        epochs=epochs,
        steps_per_epoch=source.steps_per_epoch,
        **options,
    )


def state(model: keras.Model) -> tuple[list[int], list[np.ndarray]]:
    tables = [table.digest() for table in checkpoint.dense.tables_of(model).values()]
    variables = [*model.variables, *state_of(model.optimizer)]
    dense = [np.asarray(v) for v in variables if not isinstance(v, TableProxy)]
    return tables, dense


def assert_equal(actual, expected) -> None:
    assert actual[0] == expected[0]
    for a, b in zip(actual[1], expected[1], strict=True):
        np.testing.assert_array_equal(a, b)
