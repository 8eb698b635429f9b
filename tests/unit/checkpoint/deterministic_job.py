"""A job with `enable_op_determinism`, which lasts as long as its process."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path

import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.resuming_run import BATCHES, Run, crash
from tfhybrid import checkpoint

STEPS = 6


def run(connection: Connection, directory: str, shm_directory: str) -> None:
    """Sends the digests of a run, of one that resumes from memory, and of one from a checkpoint.

    Finally sends whether TensorFlow still has no global generator.
    """
    os.environ["TFHYBRID_SHM_DIR"] = shm_directory
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(3)
    folder = Path(directory)
    whole = Run("whole", folder / "whole")
    whole.train(0, STEPS)
    connection.send(whole.digests)
    tfhybrid.shutdown()

    first = Run("killed", folder / "killed")
    first.train(0, 2)
    checkpoint.save(first.model, folder / "killed", tfhybrid.data.Position(0, 2))
    first.train(2, 4)
    crash()
    second = Run("killed", folder / "killed")
    assert int(second.model.optimizer.iterations) == 4  # from memory
    second.train(4, STEPS)
    connection.send(second.digests)
    tfhybrid.shutdown()

    third = Run("another", folder / "killed")
    assert int(third.model.optimizer.iterations) == 2  # from the checkpoint
    third.train(2, STEPS)
    connection.send(third.digests)
    export = tfhybrid.export.saved_model(third.model, folder / "exported")
    signature = tf.saved_model.load(str(export)).signatures["serving_default"]
    keys, _ = BATCHES[0][0]
    signature(**{name: tf.constant(values) for name, values in keys.items()})
    tfhybrid.shutdown()
    try:
        tf.random.get_global_generator()
    except RuntimeError:
        connection.send(True)
    else:
        connection.send(False)
