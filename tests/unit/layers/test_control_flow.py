"""Gradients of lookups in functions, branches and loops of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("job")

KEYS = tf.constant([[1, 2, 3], [4, 5, 1]], tf.int64)
Lookup = Callable[[tf.Tensor], tf.Tensor]


@pytest.fixture
def layer() -> tfhybrid.layers.Embedding:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2), table="item")
    layer.build()
    return layer


def sums_by_key(slices: tf.IndexedSlices) -> dict[int, float]:
    sums = dict.fromkeys(slices.indices.numpy().tolist(), 0.0)
    for key, row in zip(slices.indices.numpy().tolist(), slices.values.numpy(), strict=True):
        sums[key] += float(row.sum())
    return sums


def in_while_loop(look_up: Lookup) -> tf.Tensor:
    def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, total + tf.reduce_sum(look_up(KEYS[:, i : i + 1]))

    return tf.while_loop(lambda i, _: i < 3, body, (0, tf.constant(0.0)))[1]


def in_map(look_up: Lookup) -> tf.Tensor:
    sums = tf.map_fn(
        lambda keys: tf.reduce_sum(look_up(keys)), KEYS, fn_output_signature=tf.float32
    )
    return tf.reduce_sum(sums)


def in_scan(look_up: Lookup) -> tf.Tensor:
    return tf.scan(lambda total, keys: total + tf.reduce_sum(look_up(keys)), KEYS, 0.0)[-1]


def in_recurrent_layer(look_up: Lookup) -> tf.Tensor:
    class Cell(keras.layers.Layer):
        state_size = 2
        output_size = 2

        def get_initial_state(self, inputs=None, batch_size=None, dtype=None) -> list[tf.Tensor]:
            return [tf.zeros((len(KEYS), 2))]  # Keras 2 would take the dtype of the keys

        def call(self, keys: tf.Tensor, states: list[tf.Tensor]) -> tuple[tf.Tensor, list]:
            state = states[0] + look_up(keys)[:, 0]
            return state, [state]

    return tf.reduce_sum(keras.layers.RNN(Cell())(KEYS[:, :, tf.newaxis]))


@pytest.mark.parametrize("loop", [in_while_loop, in_map, in_scan, in_recurrent_layer])
def test_a_gradient_through_a_loop_is_refused_with_what_to_write_instead(layer, loop) -> None:
    @tf.function
    def gradient() -> tf.IndexedSlices:
        with tf.GradientTape() as tape:
            total = loop(layer)
        return tape.gradient(total, layer.trainable_variables)

    with pytest.raises(UnsupportedError, match=r"before the loop.*Received: a lookup of \['item'"):
        gradient()
    # Without a gradient, a loop may look up.
    assert tf.function(lambda: loop(layer))().shape == ()


def test_a_loop_reads_embeddings_that_were_looked_up_before(layer) -> None:
    @tf.function
    def gradient() -> tf.IndexedSlices:
        with tf.GradientTape() as tape:
            embeddings = layer(KEYS)
            total = tf.constant(0.0)
            for i in tf.range(3):
                total += tf.reduce_sum(embeddings[:, i])
        return tape.gradient(total, layer.trainable_variables)[0]

    assert sums_by_key(gradient()) == {1: 4.0, 2: 2.0, 3: 2.0, 4: 2.0, 5: 2.0}


def test_a_loop_of_whole_steps_trains(layer) -> None:
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.5))
    optimizer.build(layer.trainable_variables)

    @tf.function
    def steps(count: int) -> None:
        for _ in tf.range(count):
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(layer(KEYS[:, :1])) * 2.0
            gradients = tape.gradient(total, layer.trainable_variables)
            optimizer.apply_gradients(zip(gradients, layer.trainable_variables, strict=True))

    before = layer.table.lookup([1, 4])
    steps(3)
    # Each of the two samples has half the weight.
    np.testing.assert_allclose(layer.table.lookup([1, 4]), before - 3 * 0.5 * 2.0, rtol=1e-6)
    assert layer.table.version == 3


@pytest.mark.parametrize("branch", [True, False])
def test_branches_that_all_look_up_have_gradients(layer, branch) -> None:
    @tf.function
    def gradient(condition: tf.Tensor) -> tf.IndexedSlices:
        with tf.GradientTape() as tape:
            total = tf.cond(
                condition,
                lambda: tf.reduce_sum(layer(KEYS)),
                lambda: tf.reduce_sum(layer(KEYS[:, :1])) * 2.0,
            )
        return tape.gradient(total, layer.trainable_variables)[0]

    expected = {1: 4.0, 2: 2.0, 3: 2.0, 4: 2.0, 5: 2.0} if branch else {1: 4.0, 4: 4.0}
    assert sums_by_key(gradient(tf.constant(branch))) == expected


@pytest.mark.parametrize("combiner", [None, "sum"])
@pytest.mark.parametrize("tape_in_graph", [False, True])
def test_a_function_may_be_called_under_a_tape(combiner, tape_in_graph) -> None:
    config = tfhybrid.TableConfig(2, combiner=combiner)
    layer = tfhybrid.layers.Embedding(config, table="user")
    layer.build()
    total = tf.function(lambda keys: tf.reduce_sum(layer(keys)))

    def gradient() -> tf.IndexedSlices:
        with tf.GradientTape() as tape:
            result = total(KEYS)
        return tape.gradient(result, layer.trainable_variables)[0]

    slices = tf.function(gradient)() if tape_in_graph else gradient()
    assert sums_by_key(slices) == {1: 4.0, 2: 2.0, 3: 2.0, 4: 2.0, 5: 2.0}
    assert int(slices.dense_shape[0]) == 2
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.5))
    optimizer.apply_gradients([(slices, layer.trainable_variables[0])])
    assert layer.table.rows == 5
