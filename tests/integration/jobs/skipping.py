"""A training on files with bad rows that is killed and started again: skipping.py FOLDER [AT].

Each rank kills itself (kill -9) after step AT. Each appends the account of every epoch that it has
ended to FOLDER. The end writes how many updates each key has had.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
from tensorflow import keras

import tfhybrid
from tfhybrid.data import Csv, FileBatches

FOLDER = Path(sys.argv[1])
AT = int(sys.argv[2]) if len(sys.argv) > 2 else -1


class Watch(keras.callbacks.Callback):
    """Kills the process after a step, and writes the account at the end of an epoch."""

    def on_train_batch_end(self, batch: int, logs=None) -> None:
        if int(self.model.optimizer.iterations) == AT:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_end(self, epoch: int, logs=None) -> None:
        with open(FOLDER / f"account-{tfhybrid.rank()}.jsonl", "a") as file:
            file.write(json.dumps(train.account._asdict()) + "\n")


tfhybrid.init("skipping", seed=3)
train = FileBatches(
    Csv(["user"]),
    FOLDER / "*.csv",
    4,
    seed=3,
    window=32,
    bad_rows="skip",
    bad_rows_file=FOLDER / "bad.jsonl",
)
# A table that evicts rows counts their updates.
config = tfhybrid.TableConfig(1, eviction=tfhybrid.Eviction(unseen_steps=10**6))
layer = tfhybrid.layers.Embedding(config, table="users")
user = keras.Input((1,), dtype="int64", name="user")
model = keras.Model({"user": user}, keras.layers.Flatten()(layer(user)))
model.compile(
    tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)),
    keras.losses.BinaryCrossentropy(from_logits=True),
)
save = tfhybrid.callbacks.Checkpoint(FOLDER / "saved", save_freq=5, resume=True)
model.fit(
    train, epochs=2, verbose=0, callbacks=[tfhybrid.callbacks.BroadcastVariables(), save, Watch()]
)
if tfhybrid.rank() == 0:
    rows = layer.table.read(np.arange(200), states=True)
    updates = dict(zip(rows.keys.tolist(), rows.history["frequency"].tolist(), strict=True))
    (FOLDER / "updates.json").write_text(json.dumps(updates))
