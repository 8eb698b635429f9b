"""Rank 1 is slow to connect to the other host, which announces keys to it as soon as it can."""

from __future__ import annotations

import sys
import time
from types import FrameType

import numpy as np
from tensorflow import keras

import tfhybrid
from tfhybrid.job.row_service import RowService

SECONDS = 2.0


def delay(frame: FrameType, event: str, _: object) -> None:
    """A profiler that waits before the connections are made."""
    if event == "call" and frame.f_code is RowService.connect.__code__:
        time.sleep(SECONDS)


tfhybrid.init()
if tfhybrid.rank() == 1:
    sys.setprofile(delay)
config = tfhybrid.TableConfig(4, optimizer="adagrad", placement=tfhybrid.Sharded())
inputs = {"item": keras.Input((1,), dtype="int64", name="item")}
layer = tfhybrid.layers.EmbeddingCollection({"item": config}, concatenate=True)
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
batches = [{"item": np.arange(100 * step, 100 * step + 100)[:, None]} for step in range(4)]
for batch in tfhybrid.data.announce(batches, batches=2, layers=layer):
    model.train_on_batch(batch, np.ones(100, np.float32))
sys.setprofile(None)
(table,) = layer.tables.values()
sys.stdout.write(f"rank {tfhybrid.rank()} trained {table.all_rows} rows\n")
