"""The same step by `train_on_batch`, with TensorFlow and Horovod."""

from __future__ import annotations

import os
import sys

import keras
import numpy as np

import tfhybrid

KEYS = np.arange(1000)


def main(directory: str) -> None:
    """Ends once the updated rows are read."""
    os.environ["TFHYBRID_SHM_DIR"] = directory
    tfhybrid.init("start")
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(16), name="item")
    item = keras.Input((), dtype="int64")
    model = keras.Model(item, keras.layers.Dense(1)(layer(item)))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    model.train_on_batch(KEYS, np.ones(len(KEYS)))
    layer.table.lookup(KEYS)
    tfhybrid.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
