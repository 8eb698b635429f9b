"""A job that fits, saves each epoch, and runs until it is stopped: fitting.py JOB DIRECTORY."""

from __future__ import annotations

import os
import sys
import time

from tensorflow import keras

import tfhybrid

tfhybrid.init(sys.argv[1])
log = tfhybrid.data.ClickLog({"user": 1000, "item": 200}, seed=1)
batches = tfhybrid.data.Batches(log.clicks(0, 128_000), 64, seed=1)
model = tfhybrid.models.lr(["user", "item"], table=tfhybrid.TableConfig(4))
model.compile(
    tfhybrid.DistributedOptimizer("adam"), keras.losses.BinaryCrossentropy(from_logits=True)
)


class Say(keras.callbacks.Callback):
    """Says once that this rank trains."""

    def on_train_batch_end(self, batch: int, logs=None) -> None:
        if batch == 3:
            sys.stdout.write(f"running rank={tfhybrid.rank()} pid={os.getpid()}\n")
            sys.stdout.flush()
        time.sleep(0.02)


position = tfhybrid.checkpoint.restore(model, sys.argv[2])
sys.stdout.write(f"resumes at {position.epoch} {position.step}\n")
callbacks = [
    tfhybrid.callbacks.BroadcastVariables(),
    tfhybrid.callbacks.Checkpoint(sys.argv[2]),
    Say(),
]
tfhybrid.checkpoint.finish_epoch(model, batches, position, callbacks=callbacks, verbose=0)
model.fit(batches.dataset(), shuffle=False, callbacks=callbacks, verbose=0)
