"""The first step creates the optimizer's variables, and is traced once all the same."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3

pytestmark = pytest.mark.usefixtures("job")

KEYS = np.arange(8)[:, np.newaxis]
LABELS = np.ones((8, 1), np.float32)


class Counted(keras.layers.Layer):
    """Counts how often it is traced."""

    traces = 0

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.traces += tf.inside_function()
        return inputs


def compiled(optimizer: str = "adam") -> tuple[keras.Model, Counted]:
    counted = Counted()
    item = keras.Input((1,), dtype="int64", name="item")
    embedded = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="items")(item)
    model = keras.Model(item, keras.layers.Dense(1)(counted(keras.layers.Flatten()(embedded))))
    model.compile(tfhybrid.DistributedOptimizer(optimizer), "mse")
    counted.traces = 0
    return model, counted


@needs_keras_3  # Keras 2 creates metrics in the first trace
def test_by_fit() -> None:
    model, counted = compiled()
    model.fit(KEYS, LABELS, batch_size=4, epochs=2, verbose=0)
    assert counted.traces == 1
    assert int(model.optimizer.iterations) == 4


@pytest.mark.parametrize("device", ["CPU:0", None])
def test_by_a_function_of_ones_own(device: str | None) -> None:
    model, counted = compiled()

    @tf.function
    def step(keys: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(keys, training=True) - labels) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    with tf.device(device):
        for _ in range(3):
            step(tf.constant(KEYS), tf.constant(LABELS))
    assert counted.traces == 1
    assert int(model.optimizer.iterations) == 3


@pytest.mark.parametrize(
    ("optimizer", "policy", "refused"),
    [("adamax", "float32", "Adamax"), ("adam", "mixed_float16", "mixed_float16")],
)
def test_what_the_optimizer_refuses_reaches_the_caller(optimizer, policy, refused) -> None:
    """Although it is built on another thread, where Keras has no policy."""
    model, _ = compiled(optimizer)
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(policy)
    try:
        with pytest.raises(tfhybrid.errors.UnsupportedError, match=refused):
            model.fit(KEYS, LABELS, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy(before)
