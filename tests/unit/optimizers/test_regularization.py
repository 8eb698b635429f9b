"""Penalties, decoupled weight decay and clipping, against Keras on a variable of all keys' rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import variable
from tfhybrid.config import table_optimizers
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")

KEYS = np.array([7, -1, 0, 2**62, -(2**63), 11])
DECAYING: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "sgd": lambda: keras.optimizers.SGD(0.3, weight_decay=0.1),
    "momentum": lambda: keras.optimizers.SGD(0.05, 0.9, weight_decay=0.3),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05, weight_decay=0.2),
    "adam": lambda: keras.optimizers.Adam(0.001, weight_decay=5.0),
    "adamw": lambda: keras.optimizers.AdamW(0.001),
    "adamw_amsgrad": lambda: keras.optimizers.AdamW(0.01, 0.5, amsgrad=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.001, weight_decay=5.0),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05, weight_decay=0.2),
}


class Pair:
    """A table and a dense variable, trained by us, and both as variables, trained by Keras."""

    def __init__(self, optimizer: Callable[[], keras.optimizers.Optimizer], **config) -> None:
        self.layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(3, **config), name="item")
        self.layer.build()
        self.rows_before = self.layer.table.lookup(KEYS)
        self.rows = variable(self.rows_before)
        self.dense, self.keras_dense = (
            variable(np.linspace(-1, 1, 5, dtype=np.float32)) for _ in range(2)
        )
        self.ours = tfhybrid.DistributedOptimizer(optimizer())
        self.keras = optimizer()
        self.regularizer = keras.regularizers.get(config.get("regularizer"))
        self._lazy = config.get("lazy", True)
        self._random = np.random.default_rng(1)

    def step(self, touched: np.ndarray) -> None:
        """Trains some rows, numbered, of which each comes twice."""
        random, count = self._random, len(touched)
        halves = random.normal(size=(2 * count, 3)).astype(np.float32)
        dense = tf.constant(random.normal(size=5), tf.float32)
        twice = tf.IndexedSlices(tf.constant(halves), tf.constant(np.tile(KEYS[touched], 2)))
        self.ours.apply_gradients(
            zip([twice, dense], [*self.layer.trainable_variables, self.dense], strict=True)
        )
        whole = np.zeros((len(KEYS), 3), np.float32)
        whole[touched] = halves[:count] + halves[count:]
        penalized = tf.constant(whole + self._penalty(touched if self._lazy else ALL))
        self.keras.apply_gradients([(penalized, self.rows), (dense, self.keras_dense)])

    def _penalty(self, touched: np.ndarray) -> np.ndarray:
        penalty = np.zeros((len(KEYS), 3), np.float32)
        if self.regularizer is not None:
            with tf.GradientTape() as tape:
                rows = tf.constant(self.rows.numpy()[touched])
                tape.watch(rows)
                loss = self.regularizer(rows)
            penalty[touched] = tape.gradient(loss, rows)
        return penalty

    def assert_equal(self) -> None:
        ours = self.layer.table.lookup(KEYS)
        np.testing.assert_allclose(ours, self.rows.numpy(), atol=1e-6, rtol=2e-6)
        np.testing.assert_allclose(self.dense, self.keras_dense, atol=1e-6, rtol=2e-6)


ALL = np.arange(len(KEYS))


@pytest.mark.parametrize("optimizer", DECAYING)
def test_decay_of_touched_rows_equals_keras(optimizer) -> None:
    pair = Pair(DECAYING[optimizer])
    for step in range(1, 101):
        pair.step(ALL)
        if step in (1, 10, 100):
            pair.assert_equal()
    assert pair.layer.table.decay < 1


def test_rows_decay_at_any_gap_and_without_a_row() -> None:
    """SGDW: exactly what Keras does to a variable of all rows, whatever a step touches."""
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, decay_steps=10, decay_rate=0.9)
    pair = Pair(lambda: keras.optimizers.SGD(schedule, weight_decay=0.1))
    random = np.random.default_rng(2)
    for step in range(80):
        # The last key is never touched, the one before it once in a long while.
        touched = random.permutation(4)[: random.integers(0, 4)]
        pair.step(np.append(touched, 4) if step % 30 == 7 else touched)
        pair.assert_equal()
    assert pair.layer.table.rows == 5


def test_adamw_of_rows_that_no_step_touches() -> None:
    pair = Pair(lambda: keras.optimizers.AdamW(0.01, 0.5))
    for _ in range(50):
        pair.step(ALL[:3])
    pair.assert_equal()
    assert pair.layer.table.rows == 3


def test_decay_over_a_step_without_keys() -> None:
    pair = Pair(lambda: keras.optimizers.SGD(0.1, weight_decay=0.5))
    pair.step(ALL)
    for _ in range(3):
        pair.step(ALL[:0])
    pair.assert_equal()
    assert pair.layer.table.decay == pytest.approx(0.95**4)


def test_a_table_decays_by_its_own_optimizer() -> None:
    layer = tfhybrid.layers.Embedding(
        tfhybrid.TableConfig(2, "zeros", tfhybrid.optimizers.SGD(0.5, weight_decay=0.5)),
        name="item",
    )
    layer.build()
    optimizer = tfhybrid.DistributedOptimizer("adam")
    gradient = tf.IndexedSlices(tf.constant([[-2.0, 2.0]]), [3])
    optimizer.apply_gradients(zip([gradient], layer.trainable_variables, strict=True))
    optimizer.apply_gradients(
        zip(
            [tf.IndexedSlices(tf.zeros((0, 2)), tf.zeros(0, tf.int64))],
            layer.trainable_variables,
            strict=True,
        )
    )
    np.testing.assert_allclose(layer.table.lookup([3]), [[0.75, -0.75]], rtol=1e-6)


def test_a_decay_that_would_turn_weights_around_is_refused() -> None:
    pair = Pair(lambda: keras.optimizers.SGD(0.5, weight_decay=2.0))
    pair.step(ALL)
    wanted = r"'item'.*weight_decay must be below 1.*0\.5 times 2"
    with pytest.raises(tf.errors.InvalidArgumentError, match=wanted):
        pair.layer(tf.constant(KEYS))
    np.testing.assert_array_equal(pair.layer.table.lookup(KEYS), pair.rows_before)


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1])
def test_a_rate_that_is_not_finite_or_negative_is_refused_at_once(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"rate of a table must be finite and at least 0"):
        tfhybrid.optimizers.Adagrad(rate)
    with pytest.raises(ConfigError, match=r"rate of an optimizer must be finite and at least 0"):
        tfhybrid.DistributedOptimizer(keras.optimizers.SGD(rate))
    pair = Pair(lambda: keras.optimizers.SGD(0.5))
    pair.ours.learning_rate = rate  # as a callback does
    wanted = "rate of a table must be finite and at least 0"
    gradients = tf.IndexedSlices(tf.ones([len(KEYS), 3]), tf.constant(KEYS))
    with pytest.raises(tf.errors.InvalidArgumentError, match=wanted):
        pair.ours.apply_gradients([(gradients, pair.layer.trainable_variables[0])])  # no dense one
    np.testing.assert_array_equal(pair.layer.table.lookup(KEYS), pair.rows_before)


@pytest.mark.parametrize(
    "regularizer",
    [
        keras.regularizers.L1(0.05),
        keras.regularizers.L2(0.1),
        keras.regularizers.L1L2(0.05, 0.1),
        "l2",
    ],
    ids=["l1", "l2", "l1_l2", "name"],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_penalties_of_touched_rows_equal_keras(optimizer, regularizer) -> None:
    pair = Pair(lambda: keras.optimizers.get(optimizer), regularizer=regularizer)
    random = np.random.default_rng(3)
    for _ in range(30):
        # Adam's moments in Keras move without a gradient too.
        pair.step(ALL if optimizer == "adam" else random.permutation(6)[:3])
    pair.assert_equal()


EVERY_ROW: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "sgd": lambda: keras.optimizers.SGD(0.3),
    "momentum": lambda: keras.optimizers.SGD(0.05, 0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.05, 0.9, nesterov=True, global_clipnorm=1.0),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "adam": lambda: keras.optimizers.Adam(0.01, clipnorm=1.0),
    "adamw_amsgrad": lambda: keras.optimizers.AdamW(0.01, 0.5, amsgrad=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True, epsilon=1e-3),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05, l2_regularization_strength=0.01),
}


@pytest.mark.parametrize("optimizer", EVERY_ROW)
@pytest.mark.parametrize("regularizer", [None, keras.regularizers.L2(0.1)], ids=["plain", "l2"])
def test_a_table_that_is_not_lazy_equals_a_dense_variable(optimizer, regularizer) -> None:
    """Whatever a step touches: moments move, and penalties shrink, without a gradient too."""
    pair = Pair(EVERY_ROW[optimizer], regularizer=regularizer, lazy=False)
    random = np.random.default_rng(5)
    pair.step(ALL)
    for step in range(30):
        pair.step(random.permutation(6)[: step % 4])
        pair.assert_equal()
    assert pair.layer.table.rows == 6


def test_a_table_that_is_not_lazy_neither_admits_nor_evicts() -> None:
    with pytest.raises(
        ConfigError, match=r"cannot be combined with admission or eviction.*admission=Admission"
    ):
        tfhybrid.TableConfig(2, lazy=False, admission=3)
    with pytest.raises(
        ConfigError, match=r"cannot be combined with admission or eviction.*max_rows=9"
    ):
        tfhybrid.TableConfig(2, lazy=False, eviction=tfhybrid.Eviction(max_rows=9))
    tfhybrid.TableConfig(2, lazy=False, admission=1)


@pytest.mark.parametrize("regularizer", ["orthogonal_regularizer", "l3", lambda rows: 0.0, 0.1])
def test_other_regularizers_are_refused(regularizer) -> None:
    with pytest.raises(ConfigError, match="L1, L2 or L1L2"):
        table_optimizers.penalties(regularizer)


CLIPPING = {
    "value": {"clipvalue": 0.5},
    "norm": {"clipnorm": 1.5},
    "global_norm": {"global_clipnorm": 2.0},
    "norm_that_never_is": {"clipnorm": 1e6},
}


@pytest.mark.parametrize("options", CLIPPING.values(), ids=CLIPPING)
@pytest.mark.parametrize("regularizer", [None, keras.regularizers.L2(0.3)], ids=["plain", "l2"])
def test_clipping_equals_keras(options, regularizer) -> None:
    pair = Pair(
        lambda: keras.optimizers.SGD(0.1, weight_decay=0.1, **options), regularizer=regularizer
    )
    random = np.random.default_rng(4)
    for step in range(30):
        pair.step(random.permutation(6)[: step % 7])
        pair.assert_equal()


def test_each_table_is_clipped_by_its_own_norm() -> None:
    config = tfhybrid.TableConfig(1, "zeros")
    layer = tfhybrid.layers.EmbeddingCollection({"small": config, "large": config})
    layer.build({"small": (None, 1), "large": (None, 1)})
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0, clipnorm=5.0))
    slices = {
        "small": tf.IndexedSlices(tf.constant([[3.0], [4.0]]), [1, 2]),
        "large": tf.IndexedSlices(tf.constant([[30.0], [40.0]]), [1, 2]),
    }
    variables = layer.trainable_variables
    optimizer.apply_gradients(
        zip([slices[variable.table.name] for variable in variables], variables, strict=True)
    )
    for name in slices:
        np.testing.assert_allclose(layer.tables[name].lookup([1, 2]), [[-3.0], [-4.0]], rtol=1e-6)


def test_global_clipping_without_tables() -> None:
    variables = [variable(np.float32([3.0, 0.0])), variable(np.float32(0.0))]
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0, global_clipnorm=5.0))
    optimizer.apply_gradients(
        zip([tf.constant([6.0, 0.0]), tf.constant(8.0)], variables, strict=True)
    )
    np.testing.assert_allclose(variables[0], [0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(variables[1], -4.0, rtol=1e-6)


def test_clipping_is_of_the_sum_of_micro_batches() -> None:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(1, "zeros"), name="item")
    layer.build()
    optimizer = tfhybrid.DistributedOptimizer(
        keras.optimizers.SGD(1.0, global_clipnorm=5.0), backward_passes_per_step=2
    )
    dense = variable(np.float32(0.0))

    @tf.function
    def step(gradient, dense_gradient):
        slices = tf.IndexedSlices(tf.reshape(gradient, [1, 1]), tf.constant([1], tf.int64))
        optimizer.apply_gradients(
            zip([slices, dense_gradient], [*layer.trainable_variables, dense], strict=True)
        )

    step(tf.constant(60.0), tf.constant(50.0))
    step(tf.constant(-30.0), tf.constant(-10.0))
    np.testing.assert_allclose(layer.table.lookup([1]), [[-3.0]], rtol=1e-6)
    np.testing.assert_allclose(dense, -4.0, rtol=1e-6)
