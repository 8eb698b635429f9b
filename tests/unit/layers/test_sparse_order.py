"""Sparse keys and weights whose values are in any order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid

pytestmark = pytest.mark.usefixtures("job")

INDICES = np.array([[0, 0], [0, 3], [1, 1], [3, 0], [3, 1], [3, 2]])
KEYS = np.array([5, -2, 7, 5, 1, 9])
WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0, 0.25, 4.0], np.float32)
ORDER = np.array([4, 0, 3, 5, 2, 1])


def sparse(values: np.ndarray, order: np.ndarray) -> tf.SparseTensor:
    return tf.SparseTensor(INDICES[order], values[order], [4, 4])


def layer_of(**options) -> tfhybrid.layers.Embedding:
    wide = tfhybrid.initializers.Uniform(-0.5, 0.5)
    return tfhybrid.layers.Embedding(tfhybrid.TableConfig(3, wide, **options), table="word")


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("max_length", [None, 1, 2])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_order_changes_neither_embeddings_nor_gradients(combiner, max_length, keep) -> None:
    layer = layer_of(combiner=combiner, max_length=max_length, keep=keep)
    upstream = tf.random.stateless_normal([4, 3], (1, 2))
    results = []
    # Keys and weights each have an order of their own.
    for of_keys, of_weights in ((np.arange(6),) * 2, (ORDER, ORDER), (ORDER, ORDER[::-1])):
        with tf.GradientTape() as tape:
            embeddings = layer(sparse(KEYS, of_keys), sparse(WEIGHTS, of_weights))
            loss = tf.reduce_sum(embeddings * upstream)
        (gradient,) = tape.gradient(loss, layer.trainable_variables)
        by_key = np.argsort(gradient.indices)
        results.append(
            (embeddings, gradient.indices.numpy()[by_key], gradient.values.numpy()[by_key])
        )
    for result in results[1:]:
        for array, expected in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(array, expected)


def test_weights_at_other_positions_are_refused() -> None:
    layer = layer_of(combiner="sum")
    weights = tf.SparseTensor([[0, 0], [0, 2]], [1.0, 2.0], [1, 4])
    keys = tf.SparseTensor([[0, 0], [0, 1]], np.array([1, 2]), [1, 4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have the indices of its keys"):
        layer(keys, weights)


@pytest.mark.parametrize("rows", [[0, 4], [-1, 0]])
def test_rows_outside_the_shape_are_refused(rows) -> None:
    indices = [[row, 0] for row in rows]
    with pytest.raises(tf.errors.InvalidArgumentError, match="splits of bags"):
        layer_of(combiner="sum")(tf.SparseTensor(indices, np.array([1, 2]), [4, 1]))


def test_training_and_a_served_model_take_any_order(tmp_path: Path) -> None:
    inputs = keras.Input((4,), dtype="string", name="tags", sparse=True)
    layer = layer_of(combiner="sum", max_length=2)
    embedded = layer(tfhybrid.layers.StringKeys()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(embedded))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    words = np.array([f"w{key}" for key in KEYS])
    batch = (sparse(words, ORDER), tf.constant([[1.0], [0.0], [0.5], [2.0]]))
    model.fit(tf.data.Dataset.from_tensors(batch), epochs=3, verbose=0)
    trained = tfhybrid.data.string_keys(tf.constant(words[[0, 1, 2, 3, 4]])).numpy()
    rows = np.concatenate([block.keys for block in layer.table.blocks()])
    assert set(rows) == set(trained)  # max_length left out the third key of row 3
    folder = tfhybrid.export.saved_model(model, tmp_path)
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    expected = model(sparse(words, np.arange(6)))
    for order in (np.arange(6), ORDER):
        served = serve(
            tags=tf.constant(words[order]),
            tags_indices=tf.constant(INDICES[order]),
            tags_dense_shape=tf.constant([4, 4], tf.int64),
        )
        np.testing.assert_allclose(served["output_0"], expected, rtol=1e-6)
