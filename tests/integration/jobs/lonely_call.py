"""One rank makes a collective call alone; the other one comes later, goes elsewhere, or ends.

lonely_call.py late|step|other|ends|tables CALL

CALL is save, restore, evaluate, saved_model, load or broadcast. "late": rank 1 makes the call once
both ranks have logged that it is missing. "step": rank 1 trains meanwhile, and the test ends the
job. "other": rank 1 makes another call. "ends": rank 1 ends. "tables": rank 1 builds other tables.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid

way, name = sys.argv[1:3]
tfhybrid.init("lonely", seed=3)
first = tfhybrid.rank() == 0


class Warned(logging.Handler):
    """Notices the warning about a call that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "Every rank must make this call" in record.getMessage():
            self.seen.set()


warned = Warned()
logging.getLogger("tfhybrid.watch").addHandler(warned)

inputs = keras.Input([1], dtype="int64")
layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="a")
other = tfhybrid.layers.Embedding(
    tfhybrid.TableConfig(4), name="b" if first or way != "tables" else "c"
)
hidden = tf.keras.layers.Concatenate()([layer(inputs), other(inputs)])
outputs = keras.layers.Dense(1)(keras.layers.Flatten()(hidden))
model = keras.Model(inputs, outputs)
model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
keys, labels = np.arange(8).reshape(8, 1), np.array([0, 1] * 4, np.float32)
model.fit(keys, labels, batch_size=4, verbose=0)
directory = tempfile.mkdtemp()


def make(call: str) -> None:
    """Makes a collective call."""
    match call:
        case "save":
            tfhybrid.checkpoint.save(model, directory, tfhybrid.data.Position(0, 0))
        case "restore":
            tfhybrid.checkpoint.restore(model, directory)
        case "evaluate":
            tfhybrid.metrics.evaluate(model, [(keys, labels)])
        case "saved_model":
            tfhybrid.export.saved_model(model, directory)
        case "load":
            path = f"{directory}/rows.npz"
            np.savez(path, keys=np.arange(3), embeddings=np.zeros((3, 4), np.float32))
            fresh = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="fresh")
            fresh.build((None, 1))
            fresh.table.load(tfhybrid.checkpoint.NumpyRows(path))
        case "broadcast":
            model.optimizer.iterations.assign(0)
            callback = tfhybrid.callbacks.BroadcastVariables()
            callback.set_model(model)
            callback.on_train_begin()


if first:
    make(name)
    sys.stdout.write("made the call\n")
elif way == "late":
    assert warned.seen.wait(60)
    make(name)
    sys.stdout.write("made the call\n")
elif way == "step":
    model.fit(keys, labels, batch_size=4, verbose=0)
elif way == "other":
    make("evaluate" if name != "evaluate" else "save")
