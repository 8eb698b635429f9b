from __future__ import annotations

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")


def test_one_host_has_nothing_to_compare() -> None:
    """Several hosts: tests/integration/test_hosts.py."""
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2), name="items")
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Flatten()(layer(inputs)))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    compare = tfhybrid.callbacks.CompareReplicas(every_steps=1)
    model.fit(np.arange(4)[:, np.newaxis], np.ones((4, 2)), verbose=0, callbacks=[compare])
    assert layer.table.version == 1


def test_steps_are_counted_from_one() -> None:
    with pytest.raises(ConfigError, match=r"Received: every_steps=0"):
        tfhybrid.callbacks.CompareReplicas(every_steps=0)
