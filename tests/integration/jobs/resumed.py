"""A training that is killed and started again: resumed.py DIRECTORY RESULT SAMPLES_PER_STEP [AT].

Each rank kills itself (kill -9) after step AT. The end's digests and logits are written to RESULT.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import numpy as np
from tensorflow import keras

import tfhybrid
from tfhybrid.data import Batches, ClickLog

DIRECTORY, RESULT, GLOBAL_BATCH = sys.argv[1], sys.argv[2], int(sys.argv[3])
AT = int(sys.argv[4]) if len(sys.argv) > 4 else -1
MEMORY = "TFHYBRID_TEST_MEMORY" in os.environ


class Kill(keras.callbacks.Callback):
    """Kills the process after a step."""

    def on_train_batch_end(self, batch: int, logs=None) -> None:
        if int(self.model.optimizer.iterations) == AT:
            os.kill(os.getpid(), signal.SIGKILL)


tfhybrid.init("resumed", seed=3, resume="memory" if MEMORY else None)
keras.utils.set_random_seed(7)
log = ClickLog({"user": 300, "item": 40}, seed=1)
train = Batches(log.clicks(0, 1000), GLOBAL_BATCH // tfhybrid.size(), seed=1)
table = tfhybrid.TableConfig(dim=4, optimizer=tfhybrid.optimizers.Adam(0.02))
model = tfhybrid.models.deepfm(["user", "item"], table=table, hidden=(8,), dropout=0.2)
model.compile(
    tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)),
    keras.losses.BinaryCrossentropy(from_logits=True),
)
callbacks = [
    tfhybrid.callbacks.BroadcastVariables(),
    tfhybrid.callbacks.MetricAverage(),
    tfhybrid.callbacks.Checkpoint(DIRECTORY, save_freq=7, resume="memory" if MEMORY else True),
]
model.fit(train, epochs=3, verbose=0, callbacks=[*callbacks, Kill()])

unseen = log.clicks(1000, 200)
logits = model.predict(dict(unseen.features), verbose=0)
tables = tfhybrid.checkpoint.dense.tables_of(model)
dense = [np.asarray(each).tobytes().hex() for each in tfhybrid.checkpoint.dense.variables_of(model)]
if tfhybrid.rank() == 0:
    with open(RESULT, "w") as file:
        json.dump(
            {
                "step": int(model.optimizer.iterations),
                "digests": {name: table.digest() for name, table in tables.items()},
                "dense": dense,
                "logits": logits.tobytes().hex(),
            },
            file,
        )
