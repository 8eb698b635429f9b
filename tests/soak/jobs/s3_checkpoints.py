"""Saves, prunes, restores and adds deltas in a bucket.

    s3_checkpoints.py s3://BUCKET/PATH

Ends with os._exit: tensorflow-io 0.37 aborts when a process that used s3 exits
(https://github.com/tensorflow/io/issues/2039).
"""

from __future__ import annotations

import os
import sys

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tfhybrid import checkpoint
from tfhybrid.checkpoint.stored import StoredCheckpoint, locate
from tfhybrid.data import Position


def new_model() -> keras.Model:
    model = click_model.keras_model()
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def digests(model: keras.Model) -> dict[str, int]:
    return {name: table.digest() for name, table in checkpoint.dense.tables_of(model).items()}


def main(url: str) -> None:
    tfhybrid.init()
    model = new_model()
    manager = checkpoint.CheckpointManager(model, url, max_to_keep=2, full_every_saves=2)
    for number, (ranks,) in enumerate(click_model.batches(1, 1) for _ in range(5)):
        model.train_on_batch(*ranks[0])
        manager.save(Position(0, number + 1))
    expected = digests(model)
    manager.wait()
    assert manager.steps() == [3, 4, 5], manager.steps()  # 4 needs 3
    stored = StoredCheckpoint.open(locate(url, 4))
    assert stored.manifest.sequence == 1
    stored.check()
    tfhybrid.shutdown()

    tfhybrid.init()
    restored = new_model()
    assert checkpoint.restore(restored, url) == (0, 5)
    assert digests(restored) == expected
    np.testing.assert_array_equal(
        click_model.dense_weights(restored)[0], click_model.dense_weights(model)[0]
    )
    tfhybrid.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.write("restored from the bucket\n")
    sys.stdout.flush()
    os._exit(0)
