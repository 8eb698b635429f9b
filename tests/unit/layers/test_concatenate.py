"""`EmbeddingCollection(concatenate=True)` against the same features as tensors of their own."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid

pytestmark = pytest.mark.usefixtures("job")

CONFIGS = {
    "user": tfhybrid.TableConfig(dim=4),
    "history": tfhybrid.TableConfig(dim=3),
    "item": tfhybrid.TableConfig(dim=16),
}
SHARED = {"thing": ["item", "viewed"]}
KEYS = {
    "user": np.array([7, -1]),
    "history": np.array([[1, 1, 2], [3, 1, 0]]),
    "item": np.array([[5], [6]]),
    "viewed": np.array([[6, 5], [9, 9]]),
}


def collection(**options) -> tfhybrid.layers.EmbeddingCollection:
    configs = CONFIGS | {"viewed": CONFIGS["item"]}
    return tfhybrid.layers.EmbeddingCollection(configs, shared=SHARED, **options)


def joined(layer: tfhybrid.layers.EmbeddingCollection, apart: dict) -> np.ndarray:
    return np.concatenate([np.reshape(apart[name], (2, -1)) for name in layer.features], axis=1)


def test_a_sample_s_embeddings_lie_side_by_side_in_the_order_of_the_features() -> None:
    layer, apart = collection(concatenate=True), collection(prefix="apart_")
    together = layer(KEYS)
    assert together.shape == (2, 4 + 9 + 16 + 32)
    assert layer.features == apart.features
    # Equal names start equal; the prefix gives other values, so compare through the tables.
    rows = {
        name: layer.tables[table].lookup(KEYS[name])
        for name, table in (("user", "user"), ("history", "history"), ("item", "thing"))
    }
    rows["viewed"] = layer.tables["thing"].lookup(KEYS["viewed"])
    np.testing.assert_array_equal(together, joined(layer, rows))
    assert {name: value.shape for name, value in apart(KEYS).items()} == {
        name: rows[name].shape for name in rows
    }


def test_training_is_that_of_tensors_apart_bit_for_bit() -> None:
    weights = np.random.default_rng(0).normal(size=(2, 61)).astype(np.float32)

    def train(layer: tfhybrid.layers.EmbeddingCollection) -> dict[str, np.ndarray]:
        layer.build()
        optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.5))
        for _ in range(3):
            with tf.GradientTape() as tape:
                output = layer(KEYS)
                if isinstance(output, dict):
                    parts = [tf.reshape(output[name], (2, -1)) for name in layer.features]
                    output = tf.concat(parts, axis=1)
                loss = tf.reduce_sum(output * weights)
            variables = layer.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {name: table.lookup(np.arange(-1, 10)) for name, table in layer.tables.items()}

    together = train(collection(concatenate=True))
    tfhybrid.shutdown()
    tfhybrid.init()
    apart = train(collection())
    for name, rows in together.items():
        np.testing.assert_array_equal(rows, apart[name])


def test_symbolic_shape_is_known_where_lengths_are() -> None:
    inputs = {name: keras.Input(keys.shape[1:], dtype="int64") for name, keys in KEYS.items()}
    assert collection(concatenate=True)(inputs).shape == (None, 61)


def test_an_empty_batch_has_the_width() -> None:
    empty = {name: keys[:0] for name, keys in KEYS.items()}
    assert collection(concatenate=True)(empty).shape == (0, 61)


def test_features_of_different_batches_are_refused() -> None:
    wrong = KEYS | {"item": np.array([[5]])}
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=r"batch|Dimension"):
        collection(concatenate=True)(wrong)
