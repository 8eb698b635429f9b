"""A learning rate that stops being one during training is refused before any weight is changed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid

pytestmark = pytest.mark.usefixtures("job")

KEYS = np.arange(6)
RATES = {math.nan: "nan", math.inf: "inf", -0.25: "-0.25"}


@keras.utils.register_keras_serializable("tfhybrid_tests")
class Broken(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that is right for two steps."""

    def __call__(self, step):
        return tf.where(tf.cast(step, tf.int64) < 2, 0.5, math.nan)

    def get_config(self):
        return {}


@keras.utils.register_keras_serializable("tfhybrid_tests")
class Counting(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, step):
        self.calls += 1
        return tf.constant(0.5)

    def get_config(self):
        return {}


class Breaking(keras.callbacks.Callback):
    """Assigns a rate after two steps."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def on_train_batch_end(self, batch, logs=None) -> None:
        if batch == 1:
            self.model.optimizer.learning_rate = self.rate


def model_of(optimizer: keras.optimizers.Optimizer, **options) -> keras.Model:
    """A model whose table has a rate of its own, which stays right."""
    own = tfhybrid.optimizers.SGD(0.5)
    keys = keras.Input([1], dtype="int64")
    rows = tfhybrid.layers.Embedding(tfhybrid.TableConfig(3, optimizer=own), name="item")(keys)
    model = keras.Model(keys, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
    model.compile(tfhybrid.DistributedOptimizer(optimizer, **options), "mse")
    return model


def weights_of(model: keras.Model) -> list[np.ndarray]:
    rows = next(each for each in model.layers if isinstance(each, tfhybrid.layers.Embedding))
    return [rows.table.lookup(KEYS), *map(np.array, model.layers[-1].get_weights())]


def fit(model: keras.Model, steps: int, callbacks=()) -> None:
    keys = np.tile(KEYS, steps)[:, None]
    labels = np.linspace(-1, 1, len(keys), dtype=np.float32)
    model.fit(keys, labels, len(KEYS), shuffle=False, verbose=0, callbacks=[*callbacks])


def assert_refused(model: keras.Model, received: str, callbacks=()) -> None:
    """In the third step, which changes nothing."""
    refused = rf"rate of an optimizer must be finite and at least 0\. Received: {received}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=refused):
        fit(model, 4, callbacks)
    assert int(model.optimizer.iterations) == 2
    weights = weights_of(model)
    assert all(np.isfinite(each).all() for each in weights)
    with pytest.raises(tf.errors.InvalidArgumentError, match=refused):
        fit(model, 1)
    for now, before in zip(weights_of(model), weights, strict=True):
        np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize("on_nonfinite", ["raise", "skip"])
@pytest.mark.parametrize("rate", RATES)
def test_a_rate_that_a_callback_assigns_is_refused(rate: float, on_nonfinite: str) -> None:
    model = model_of(keras.optimizers.SGD(0.5), on_nonfinite=on_nonfinite)
    assert_refused(model, RATES[rate], [Breaking(rate)])
    model.optimizer.learning_rate = 0.5
    before = weights_of(model)
    fit(model, 1)
    for now, then in zip(weights_of(model), before, strict=True):
        assert (now != then).any()


def test_a_rate_of_a_schedule_is_refused() -> None:
    assert_refused(model_of(keras.optimizers.Adam(Broken())), "nan")


def test_a_rate_is_refused_in_eager_training() -> None:
    model = model_of(keras.optimizers.SGD(0.5))
    model.run_eagerly = True
    assert_refused(model, "nan", [Breaking(math.nan)])


def test_a_rate_is_refused_with_micro_batches() -> None:
    model = model_of(keras.optimizers.SGD(0.5), backward_passes_per_step=2)
    model.optimizer.learning_rate = math.nan
    before = weights_of(model)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Received: nan"):
        fit(model, 2)
    for now, then in zip(weights_of(model), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_schedule_is_computed_once_for_all_tables() -> None:
    calls = {}
    for tables in (1, 4):
        schedule = Counting()
        optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(schedule))
        optimizer.learning_rate = schedule  # not the copy that the configuration makes
        names = [f"item_{tables}_{number}" for number in range(tables)]
        layers = [tfhybrid.layers.Embedding(tfhybrid.TableConfig(3), name=name) for name in names]
        for layer in layers:
            layer.build()
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(layer(tf.constant(KEYS))) for layer in layers])
        variables = [layer.trainable_variables[0] for layer in layers]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        calls[tables] = schedule.calls
    assert calls[4] == calls[1] > 0
