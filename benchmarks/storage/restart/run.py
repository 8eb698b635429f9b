"""One run of the job of this benchmark: it goes on, says how long that took, and dies.

    python -m benchmarks.storage.restart.run DIRECTORY ROWS RESUME

Makes all rows and a checkpoint where there is none. Then it makes steps, and kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfhybrid

DIM = 16
KEYS = 4096
STEPS = 40
WIDTHS = (1024, 1024, 256, 1)  # 5.5 MB of dense weights, 16 MB with Adam's state


def make_model() -> keras.Model:
    """A model of one table and a tower."""
    config = tfhybrid.TableConfig(DIM, optimizer=tfhybrid.optimizers.Adagrad(0.1))
    inputs = keras.Input((16,), dtype="int64")
    x = keras.layers.Flatten()(tfhybrid.layers.Embedding(config, name="item")(inputs))
    for units in WIDTHS:
        x = keras.layers.Dense(units)(x)
    model = keras.Model(inputs, x)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)), "mse")
    return model


def fill(model: keras.Model, rows: int) -> None:
    """Makes all rows, and the first update of everything."""
    (table,) = tfhybrid.checkpoint.dense.tables_of(model).values()
    block = 1 << 20
    for first in range(0, rows, block):
        keys = np.arange(first, min(first + block, rows))
        embeddings = table.lookup(keys)
        states = np.full((len(keys), 1, DIM), 0.1, np.float32)
        table.writer.write_rows(tfhybrid.store.RowBlock(keys, embeddings, states))


def main() -> None:
    """Runs and reports."""
    directory, rows, resume = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "memory"
    # Before the clock: TensorFlow's first use.
    tf.constant(0)
    started = time.perf_counter()
    tfhybrid.init("restart-benchmark", resume="memory" if resume else None)
    initialised = time.perf_counter()
    model = make_model()
    built = time.perf_counter()
    position = tfhybrid.checkpoint.restore(model, directory)
    (table,) = tfhybrid.checkpoint.dense.tables_of(model).values()
    table.lookup([0])
    restored = time.perf_counter()
    steps_in_checkpoint = tfhybrid.checkpoint.steps(directory)
    if not steps_in_checkpoint:
        fill(model, rows)
    random = np.random.default_rng(position.step)
    labels = np.zeros((KEYS // 16, 1), np.float32)
    milliseconds = []
    for _ in range(STEPS):
        keys = random.integers(rows, size=(KEYS // 16, 16))
        before = time.perf_counter()
        model.train_on_batch(keys, labels)
        milliseconds.append(1e3 * (time.perf_counter() - before))
    if not steps_in_checkpoint:
        tfhybrid.checkpoint.save(model, directory, tfhybrid.data.Position(0, STEPS))
        model.train_on_batch(keys, labels)
    result = {
        "position": position.step,
        "seconds_of_init": initialised - started,
        "seconds_of_restore": restored - built,
        "seconds": initialised - started + restored - built,
        "step_ms": float(np.median(milliseconds[5:])),
        "rows": table.rows,
        "bytes": table.rows * (8 + 8 * DIM),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
