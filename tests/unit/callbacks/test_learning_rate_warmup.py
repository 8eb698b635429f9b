from __future__ import annotations

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")

STEPS = 4


def test_it_raises_the_rates_of_both_kinds() -> None:
    """Gradients of 1 and plain SGD: a row moves by the rate of each step."""
    own = tfhybrid.TableConfig(1, optimizer=tfhybrid.optimizers.SGD(0.5))
    layers = {
        "own": tfhybrid.layers.Embedding(own, name="own_table"),
        "follows": tfhybrid.layers.Embedding(tfhybrid.TableConfig(1), name="follows_table"),
    }
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in layers}
    embedded = [keras.layers.Flatten()(layers[name](inputs[name])) for name in layers]
    model = keras.Model(inputs, keras.layers.Add()(embedded))
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0))
    model.compile(optimizer, lambda _, outputs: outputs)
    keys = {name: np.full((STEPS, 1), 7) for name in layers}
    before = {name: layer.table.lookup([7]) for name, layer in layers.items()}
    warmup = tfhybrid.callbacks.LearningRateWarmup(1.0, steps=2, start=0.5)
    model.fit(keys, np.zeros((STEPS, 1)), batch_size=1, verbose=0, callbacks=[warmup])
    factors = 0.5 + 0.75 + 1.0 + 1.0
    for name, rate in (("own", 0.5), ("follows", 1.0)):
        moved = before[name] - layers[name].table.lookup([7])
        np.testing.assert_allclose(moved, rate * factors, rtol=1e-6)
    assert float(optimizer.learning_rate) == 1.0


def test_a_schedule_is_refused() -> None:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(rate)), "mse")
    warmup = tfhybrid.callbacks.LearningRateWarmup(0.1, steps=2)
    with pytest.raises(ConfigError, match="put the warm-up into the schedule"):
        model.fit(np.ones((1, 1)), np.ones((1, 1)), verbose=0, callbacks=[warmup])


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 1, "start": 1.5}])
def test_what_is_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="Received: steps="):
        tfhybrid.callbacks.LearningRateWarmup(0.1, **wrong)
