"""Plain Horovod: every rank holds the table and its Adagrad accumulators."""

from __future__ import annotations

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.hosts.memory import footprint


def make_table(name: str, rows: int, dim: int) -> footprint.TableUnderTest:
    """Returns a variable `[rows, dim]` trained through `hvd.allreduce` of IndexedSlices."""
    # Drawn eagerly, the values would leave twice their size behind in the process.
    draw = tf.function(lambda: tf.random.uniform((rows, dim), -0.05, 0.05))
    table = tf.Variable(draw(), name=name)
    optimizer = tf_keras.optimizers.legacy.Adagrad(0.05)

    @tf.function
    def train(keys: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.embedding_lookup(table, keys))
        gradient = hvd.allreduce(tape.gradient(loss, table))
        optimizer.apply_gradients([(gradient, table)])

    lookup = tf.function(lambda keys: tf.nn.embedding_lookup(table, keys))
    return footprint.TableUnderTest(
        train=lambda keys: train(tf.constant(keys)), lookup=lambda keys: lookup(tf.constant(keys))
    )


def total(value: int) -> int:
    """Returns the sum over the ranks."""
    return int(np.sum(hvd.allgather_object(value)))


def main() -> None:
    """Runs this side on every rank."""
    config = footprint.parse_config(__doc__)
    hvd.init()
    ranks = (hvd.rank(), hvd.size())
    result = footprint.measure(
        config, ranks, lambda name, rows: make_table(name, rows, config.dim), total
    )
    payload = {"payload_bytes": config.payload_bytes}
    footprint.report("plain Horovod", *ranks, result | payload)


if __name__ == "__main__":
    main()
