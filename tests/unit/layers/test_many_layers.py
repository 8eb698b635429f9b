"""Many layers wait for one update, and then look up at once on the same threads."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tests.support.keras_versions import needs_keras_3

pytestmark = [pytest.mark.usefixtures("job"), needs_keras_3]

LAYERS = 8
TABLE = tfhybrid.TableConfig(dim=4, initializer="zeros")


def trained(look_up, weights: list, batches: np.ndarray) -> None:
    """Trains all embeddings towards 1."""
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1))
    optimizer.build(weights)

    @tf.function
    def step(keys: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.square(each - 1)) for each in look_up(keys)])
        optimizer.apply(tape.gradient(loss, weights), weights)

    for keys in batches:
        step(tf.constant(keys))


# So many keys that threads share a lookup, in steps that begin while an update is under way.
def test_layers_and_a_collection_train_the_same_rows() -> None:
    batches = np.random.default_rng(5).integers(-3000, 3000, size=(30, LAYERS, 16384))
    layers = [tfhybrid.layers.Embedding(TABLE, name=f"layer_{i}") for i in range(LAYERS)]
    names = [f"feature_{i}" for i in range(LAYERS)]
    collection = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(names, TABLE))

    def by_collection(keys: tf.Tensor) -> list[tf.Tensor]:
        embeddings = collection(dict(zip(names, tf.unstack(keys), strict=True)))
        return [embeddings[name] for name in names]

    def by_layers(keys: tf.Tensor) -> list[tf.Tensor]:
        return [layer(of) for layer, of in zip(layers, tf.unstack(keys), strict=True)]

    for look_up in (by_collection, by_layers):
        look_up(tf.zeros([LAYERS, 1], tf.int64))
    trained(by_collection, collection.trainable_variables, batches)
    trained(by_layers, [layer.trainable_variables[0] for layer in layers], batches)
    keys = tf.constant(batches[0])
    for one, other in zip(by_collection(keys), by_layers(keys), strict=True):
        np.testing.assert_array_equal(one, other)
