"""Every rank tells where it runs, in the order of ranks, and that tables work there."""

from __future__ import annotations

import os
import socket
import sys

import numpy as np
from tensorflow import keras

import tfhybrid
from tfhybrid import distributed

tfhybrid.init()
inputs = keras.Input((1,), dtype="int64")
embedded = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="item")(inputs)
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(embedded)))
model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
model.fit(np.arange(8), np.ones(8), verbose=0)
where = (tfhybrid.rank(), socket.gethostname(), tfhybrid.local_rank(), os.getcwd())
told = distributed.allgather_object(where)
if tfhybrid.rank() == 0:
    for rank, host, local_rank, folder in told:
        line = f"rank {rank} of {tfhybrid.size()} on {host}, its {local_rank}, in {folder}"
        sys.stdout.write(f"{line}\n")
tfhybrid.shutdown()
