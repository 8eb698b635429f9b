"""Rank 0 answers Prometheus for all ranks."""

from __future__ import annotations

import socket
import urllib.request

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tfhybrid import distributed
from tfhybrid.errors import ConfigError, StoreError

STEPS, BATCH = 3, 4


@pytest.mark.world_size
def test_rank_0_tells_the_samples_of_all_ranks() -> None:
    tfhybrid.init()
    inputs = keras.Input((1,), dtype="int64")
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2), name="item")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    endpoint = tfhybrid.metrics.serve(0, address="127.0.0.1")
    assert (endpoint is not None) == (tfhybrid.rank() == 0)
    before = samples(endpoint)
    for step in range(STEPS):
        model.train_on_batch(np.full((BATCH, 1), step), np.ones(BATCH))
    assert layer.table.version == STEPS
    if endpoint is not None:
        assert samples(endpoint) - before == STEPS * BATCH * tfhybrid.size()
        endpoint.close()
    tfhybrid.shutdown()


def samples(endpoint) -> float:
    if endpoint is None:
        return 0.0
    told = urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics").read().decode()
    lines = (line.rpartition(" ") for line in told.splitlines())
    return next(float(value) for name, _, value in lines if name == "tfhybrid_samples_total")


@pytest.mark.world_size
def test_a_port_that_is_taken_is_an_error_on_all_ranks() -> None:
    tfhybrid.init()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = distributed.broadcast_object(taken.getsockname()[1])
        with pytest.raises((ConfigError, StoreError), match=f"127.0.0.1:{port}"):
            tfhybrid.metrics.serve(port, address="127.0.0.1")
        distributed.barrier()
    tfhybrid.shutdown()
