"""Lookup and update of one table in one process, against a dense `tf.Variable`, interleaved.

    python -m benchmarks.lookup [--rows 4000000] [--dim 16] [--keys 65536] [--rounds 50]

All keys are present. The dense side is `tf.nn.embedding_lookup` and TensorFlow's own sparse Adagrad
kernel, which addresses rows directly: what a hash index and a shared table cost shows against it.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import statistics
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

import tfhybrid
from benchmarks import launch

LOGGER = logging.getLogger("benchmarks.lookup")
LEARNING_RATE = 0.05
EPSILON = 1e-7

Operation = Callable[[tf.Tensor], object]


@dataclasses.dataclass(frozen=True)
class TableUnderTest:
    """A table's two operations on int64 keys `[keys, 1]`.

    Args:
        lookup: reads the rows.
        train: reads the rows, makes a gradient for each and applies Adagrad.
    """

    lookup: Operation
    train: Operation


def dense_table(rows: int, dim: int) -> TableUnderTest:
    """Returns a variable `[rows, dim]` with TensorFlow's lookup and sparse Adagrad kernel."""
    table = tf.Variable(tf.random.uniform((rows, dim), -0.05, 0.05))
    accumulator = tf.Variable(tf.fill((rows, dim), 0.1))

    @tf.function(autograph=False)
    def lookup(keys: tf.Tensor) -> tf.Tensor:
        return tf.nn.embedding_lookup(table, keys)

    @tf.function(autograph=False)
    def train(keys: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.embedding_lookup(table, keys))
        gradient = tape.gradient(loss, table)
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=table.handle,
            accum=accumulator.handle,
            lr=LEARNING_RATE,
            epsilon=EPSILON,
            grad=gradient.values,
            indices=gradient.indices,
        )
        return loss

    return TableUnderTest(lookup, train)


def hybrid_table(dim: int) -> tuple[TableUnderTest, tfhybrid.layers.Embedding]:
    """Returns an Embedding layer's operations, and the layer."""
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=dim), name="item")
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, layer(inputs))
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(LEARNING_RATE))
    optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def lookup(keys: tf.Tensor) -> tf.Tensor:
        return model(keys, training=False)

    @tf.function(autograph=False)
    def train(keys: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(keys, training=True))
        weights = model.trainable_variables
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        optimizer.apply(gradients, weights)
        return loss

    return TableUnderTest(lookup, train), layer


def time_interleaved(
    operations: dict[str, Operation], batches: list[tf.Tensor], rounds: int
) -> dict[str, float]:
    """Returns each operation's median milliseconds over the rounds, in which they take turns."""
    milliseconds: dict[str, list[float]] = {name: [] for name in operations}
    for number in range(rounds):
        keys = batches[number % len(batches)]
        for name, operation in operations.items():
            start = time.perf_counter()
            operation(keys).numpy()
            milliseconds[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in milliseconds.items()}


def show(times: dict[str, dict[str, float]], keys: int) -> None:
    """Prints the comparison as a table."""
    table = Table(title=f"{keys:,} distinct keys, median of the rounds")
    for heading in ("operation", "dense ms", "tfhybrid ms", "tfhybrid / dense", "million keys/s"):
        table.add_column(heading, justify="left" if heading == "operation" else "right")
    for operation, sides in times.items():
        dense, hybrid = sides["dense"], sides["tfhybrid"]
        rate = keys / hybrid / 1e3
        table.add_row(
            operation, f"{dense:.2f}", f"{hybrid:.2f}", f"{hybrid / dense:.2f}", f"{rate:.1f}"
        )
    Console().print(table)


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/lookup.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookup", description=__doc__)
    for name, default in (("rows", 4_000_000), ("dim", 16), ("keys", 65_536), ("rounds", 50)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    tfhybrid.init()
    dense = dense_table(arguments.rows, arguments.dim)
    hybrid, layer = hybrid_table(arguments.dim)
    random = np.random.default_rng(0)
    rows = random.permutation(arguments.rows)[:, None]
    for start in range(0, arguments.rows, arguments.keys):
        hybrid.train(tf.constant(rows[start : start + arguments.keys]))
    batches = [
        tf.constant(random.choice(arguments.rows, (arguments.keys, 1), replace=False))
        for _ in range(8)
    ]
    times = {}
    for operation in ("lookup", "train"):
        sides = {"dense": getattr(dense, operation), "tfhybrid": getattr(hybrid, operation)}
        time_interleaved(sides, batches, rounds=5)
        times[operation] = time_interleaved(sides, batches, arguments.rounds)
    show(times, arguments.keys)
    (table,) = layer.tables.values()
    result = {"setting": vars(arguments), "rows": table.stats().rows, "milliseconds": times}
    LOGGER.info("%s", launch.write_result("lookup", result).relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
