"""The native optimizers of tables against their Keras namesakes, and their learning rates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import variable
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")

KEYS = np.array([7, -1, 0, 2**62])
HALVING = keras.optimizers.schedules.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.5)
# At least three settings of each.
NAMESAKES: dict[str, list[Callable[[], keras.optimizers.Optimizer]]] = {
    "sgd": [lambda rate=rate: keras.optimizers.SGD(rate) for rate in (0.3, 0.01, 1.0)],
    "momentum": [
        lambda momentum=momentum: keras.optimizers.SGD(0.05, momentum)
        for momentum in (0.9, 0.5, 0.99)
    ],
    "nesterov": [
        lambda momentum=momentum: keras.optimizers.SGD(0.05, momentum, nesterov=True)
        for momentum in (0.9, 0.5, 0.99)
    ],
    "adagrad": [
        lambda: keras.optimizers.Adagrad(0.05),
        lambda: keras.optimizers.Adagrad(0.05, initial_accumulator_value=0.0, epsilon=1e-3),
        lambda: keras.optimizers.Adagrad(0.5, initial_accumulator_value=1.0),
    ],
    "adam": [
        lambda: keras.optimizers.Adam(0.001),
        lambda: keras.optimizers.Adam(0.001, beta_1=0.5, beta_2=0.9, epsilon=1e-3),
        lambda: keras.optimizers.Adam(0.01, beta_1=0.0, beta_2=0.99),
    ],
    "amsgrad": [
        lambda: keras.optimizers.Adam(0.001, amsgrad=True),
        lambda: keras.optimizers.Adam(0.001, beta_2=0.9, amsgrad=True),
        lambda: keras.optimizers.Adam(0.01, beta_1=0.5, epsilon=1e-3, amsgrad=True),
    ],
    "rmsprop": [
        lambda: keras.optimizers.RMSprop(0.001),
        lambda: keras.optimizers.RMSprop(0.001, rho=0.5, epsilon=1e-3),
        lambda: keras.optimizers.RMSprop(0.001, momentum=0.9),
        lambda: keras.optimizers.RMSprop(0.001, centered=True, epsilon=1e-3),
        lambda: keras.optimizers.RMSprop(0.001, momentum=0.5, centered=True, epsilon=1e-3),
    ],
    "ftrl": [
        lambda: keras.optimizers.Ftrl(0.05),
        lambda: keras.optimizers.Ftrl(0.05, l1_regularization_strength=0.1, beta=1.0),
        lambda: keras.optimizers.Ftrl(
            0.05, l2_regularization_strength=0.1, l2_shrinkage_regularization_strength=0.05
        ),
        lambda: keras.optimizers.Ftrl(0.5, initial_accumulator_value=1.0),
    ],
}
SETTINGS = [(name, setting) for name in NAMESAKES for setting in range(len(NAMESAKES[name]))]


def built_layer(**config) -> tfhybrid.layers.Embedding:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(3, **config), name="item")
    layer.build()
    return layer


@pytest.mark.parametrize(("optimizer", "setting"), SETTINGS)
def test_touched_rows_equal_those_of_keras(optimizer, setting) -> None:
    layer = built_layer()
    rows = variable(layer.table.lookup(KEYS))
    keras_optimizer = NAMESAKES[optimizer][setting]()
    ours = tfhybrid.DistributedOptimizer(NAMESAKES[optimizer][setting]())
    random = np.random.default_rng(1)
    for step in range(1, 101):
        gradient = tf.constant(random.normal(size=rows.shape), tf.float32)
        ours.apply_gradients(
            zip([tf.IndexedSlices(gradient, KEYS)], layer.trainable_variables, strict=True)
        )
        keras_optimizer.apply_gradients(zip([gradient], [rows], strict=True))
        if step in (1, 10, 100):
            np.testing.assert_allclose(layer.table.lookup(KEYS), rows.numpy(), atol=1e-6, rtol=2e-6)


@pytest.mark.parametrize("second", ["adam", "adagrad", "ftrl"])
@pytest.mark.parametrize("first", ["adam", "sgd", "rmsprop"])
def test_a_new_optimizer_begins_afresh_as_that_of_keras(first, second) -> None:
    """Its moments and its steps, of rows that its predecessor made and of new ones."""
    layer = built_layer()
    rows = variable(layer.table.lookup(KEYS))
    random = np.random.default_rng(1)
    for name, present in ((first, KEYS[:2]), (second, KEYS), (second, KEYS)):
        keras_optimizer = NAMESAKES[name][0]()
        ours = tfhybrid.DistributedOptimizer(NAMESAKES[name][0]())
        for _ in range(5):
            gradient = random.normal(size=rows.shape).astype(np.float32)
            gradient[len(present) :] = 0.0
            slices = tf.IndexedSlices(tf.constant(gradient[: len(present)]), present)
            ours.apply_gradients(zip([slices], layer.trainable_variables, strict=True))
            keras_optimizer.apply_gradients(zip([tf.constant(gradient)], [rows], strict=True))
        np.testing.assert_allclose(layer.table.lookup(KEYS), rows.numpy(), atol=1e-6, rtol=2e-6)


@pytest.mark.parametrize("accumulator", [0.1, 0.0, 2.0])
def test_row_adagrad_keeps_one_number_per_row(accumulator) -> None:
    optimizer = tfhybrid.optimizers.RowAdagrad(0.05, initial_accumulator_value=accumulator)
    layer = built_layer(optimizer=optimizer)
    rows = layer.table.lookup(KEYS).astype(np.float64)
    state = np.full(len(KEYS), accumulator)
    ours = tfhybrid.DistributedOptimizer("sgd")
    random = np.random.default_rng(1)
    for _ in range(100):
        gradient = random.normal(size=rows.shape).astype(np.float32)
        ours.apply_gradients(
            zip(
                [tf.IndexedSlices(tf.constant(gradient), KEYS)],
                layer.trainable_variables,
                strict=True,
            )
        )
        state += (gradient.astype(np.float64) ** 2).mean(axis=1)
        rows -= 0.05 * gradient / (np.sqrt(state)[:, np.newaxis] + 1e-7)
    np.testing.assert_allclose(layer.table.lookup(KEYS), rows, atol=1e-6, rtol=2e-6)
    (block,) = layer.table.blocks(states=True)
    of_key = dict(zip(block.keys.tolist(), block.states.reshape(-1), strict=True))
    np.testing.assert_allclose([of_key[key] for key in KEYS.tolist()], state, rtol=1e-6)
    assert block.states.shape == (len(KEYS), 1, 1)


def test_gradients_of_equal_keys_are_summed_first() -> None:
    layer = built_layer(initializer="zeros")
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(1.0, 0.0, 0.0))
    twice = tf.IndexedSlices(tf.constant([[1.0, 2.0, -3.0]] * 2), tf.constant([5, 5]))
    optimizer.apply_gradients(zip([twice], layer.trainable_variables, strict=True))
    np.testing.assert_allclose(layer.table.lookup([5]), [[-1.0, -1.0, 1.0]], rtol=1e-6)


def test_adam_leaves_rows_alone_that_a_step_does_not_touch() -> None:
    layer = built_layer()
    optimizer = tfhybrid.DistributedOptimizer("adam")
    gradient = tf.ones((1, 3))
    optimizer.apply_gradients(
        zip([tf.IndexedSlices(gradient, [1])], layer.trainable_variables, strict=True)
    )
    before = layer.table.lookup([1])
    optimizer.apply_gradients(
        zip([tf.IndexedSlices(gradient, [2])], layer.trainable_variables, strict=True)
    )
    np.testing.assert_array_equal(layer.table.lookup([1]), before)


def rates(layer, optimizer, steps: int, between=lambda step: None) -> list[float]:
    """Returns how far each step of a compiled function moved a row whose gradient is 1."""

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(layer(tf.constant([7])))
        optimizer.apply_gradients(
            zip(
                tape.gradient(value, layer.trainable_variables),
                layer.trainable_variables,
                strict=True,
            )
        )

    positions = [0.0]
    for step in range(steps):
        between(step)
        train()
        positions.append(float(layer.table.lookup([7])[0, 0]))
    return (-np.diff(positions)).tolist()


def test_a_table_has_a_rate_of_its_own() -> None:
    layer = built_layer(initializer="zeros", optimizer=tfhybrid.optimizers.SGD(0.25))
    assert rates(layer, tfhybrid.DistributedOptimizer("adam"), 2) == [0.25, 0.25]


def test_a_table_has_a_schedule_of_its_own() -> None:
    layer = built_layer(initializer="zeros", optimizer=tfhybrid.optimizers.SGD(HALVING))
    assert rates(layer, tfhybrid.DistributedOptimizer("adam"), 3) == [1.0, 0.5, 0.25]


def test_a_table_follows_the_schedule_of_keras() -> None:
    layer = built_layer(initializer="zeros")
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(HALVING))
    assert rates(layer, optimizer, 3) == [1.0, 0.5, 0.25]


def test_a_table_follows_the_rate_of_keras_when_it_changes() -> None:
    layer = built_layer(initializer="zeros")
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0))

    def halve(step: int) -> None:
        optimizer.learning_rate = 0.5**step

    assert rates(layer, optimizer, 3, between=halve) == [1.0, 0.5, 0.25]


@pytest.mark.parametrize(
    ("keras_rate", "expected"), [(HALVING, [4.0, 2.0, 1.0]), (0.5, [2.0, 2.0, 2.0])]
)
def test_a_table_has_a_multiple_of_the_rate_of_keras(keras_rate, expected) -> None:
    factor = tfhybrid.optimizers.RateFactor(4)
    layer = built_layer(initializer="zeros", optimizer=tfhybrid.optimizers.SGD(factor))
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(keras_rate))
    assert rates(layer, optimizer, 3) == expected


@pytest.mark.parametrize("factor", [0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_is_none_is_refused(factor) -> None:
    with pytest.raises(ConfigError, match=f"Received: {factor}"):
        tfhybrid.optimizers.RateFactor(factor)


def test_optimizers_have_names() -> None:
    assert tfhybrid.optimizers.get("Adam") == tfhybrid.optimizers.Adam()
    with pytest.raises(ConfigError, match="'adagrda'"):
        tfhybrid.optimizers.get("adagrda")


def test_an_unknown_name_in_a_recipe_is_refused() -> None:
    layer = built_layer(optimizer="adagrda")
    with pytest.raises(ConfigError, match="'adagrda'"):
        tfhybrid.DistributedOptimizer("sgd").build(layer.trainable_variables)
