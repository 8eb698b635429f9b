"""Rank 1, which leads no host, goes on alone after training: it reads the rows of all owners."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import distributed

ROWS = 2_000
SECONDS = 3.0  # in which leaders could leave, if they did not wait

tfhybrid.init()
config = tfhybrid.TableConfig(4, optimizer="adagrad", placement=tfhybrid.Sharded())
inputs = keras.Input((1,), dtype="int64")
layer = tfhybrid.layers.Embedding(config, name="item")
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
keys = np.arange(tfhybrid.rank(), ROWS, tfhybrid.size())[:, None]
model.fit(keys, np.ones(len(keys)), batch_size=100, shuffle=False, verbose=0)
if tfhybrid.rank() == 1:
    with pytest.raises(tf.errors.UnknownError, match="Horovod has been shut down"):
        distributed.barrier()  # the others have come to their ends
    time.sleep(SECONDS)
    error = model.evaluate(np.arange(ROWS)[:, None], np.ones(ROWS), batch_size=100, verbose=0)
    rows = [shard.rows for shard in layer.table.owners()]
    sys.stdout.write(f"alone: {sum(rows)} rows of {len(rows)} hosts, error {error:.3f}\n")
