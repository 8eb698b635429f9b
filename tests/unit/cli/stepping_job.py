"""A job with two tables that trains a step whenever it is told to."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

import keras
import numpy as np

import tfhybrid
from tests.support.reference.click_model import collection

TABLES = {
    "item": tfhybrid.TableConfig(4, eviction=tfhybrid.Eviction(unseen_steps=2, every_steps=1)),
    "user id": tfhybrid.TableConfig(2),
}


def run(test: Connection, shm_directory: str) -> None:
    """Trains step by step, and tells the test when tables have it; never ends by itself."""
    os.environ["TFHYBRID_SHM_DIR"] = shm_directory
    tfhybrid.init("seen")
    model = compiled()
    tables = collection(model).tables.values()
    for step in range(10**9):
        test.recv()
        model.train_on_batch({name: np.array([step]) for name in TABLES}, np.ones(1))
        assert all(table.version == step + 1 for table in tables)
        test.send("trained")


def compiled() -> keras.Model:
    layer = tfhybrid.layers.EmbeddingCollection(TABLES)
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in TABLES}
    flat = [keras.layers.Flatten()(e) for e in layer(inputs).values()]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(flat)))
    model.compile(tfhybrid.DistributedOptimizer("adagrad"), "mse")
    return model
