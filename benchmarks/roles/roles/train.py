"""A rank of the benchmark of roles: trains what it reads itself, or what data nodes send it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfhybrid
from benchmarks.roles.roles.received import received_by_host
from benchmarks.roles.roles.workload import SURPLUS, Workload, train_data
from benchmarks.step.step import timing
from tfhybrid.core import native
from tfhybrid.data import Ragged

LEARNING_RATE = 0.05
READ_AHEAD = 4


def build(
    workload: Workload, sharded: bool
) -> tuple[tfhybrid.layers.EmbeddingCollection, keras.Model]:
    """Returns the layer that looks up, and the tower on all embeddings and dense features."""
    placement = tfhybrid.Sharded() if sharded else tfhybrid.Replicated()
    tables = {
        name: tfhybrid.TableConfig(
            dim=dim,
            initializer="uniform",
            placement=placement,
            combiner="mean" if is_bag else None,
        )
        for name, (dim, is_bag) in workload.tables().items()
    }
    collection = tfhybrid.layers.EmbeddingCollection(tables, concatenate=True)
    collection.build()
    columns = sum(dim for dim, _ in workload.tables().values()) + workload.dense
    normal = keras.initializers.RandomNormal(stddev=0.05, seed=0)
    tower = keras.Sequential(
        [
            keras.Input((columns,)),
            keras.layers.Dense(256, activation="relu", kernel_initializer=normal),
            keras.layers.Dense(128, activation="relu", kernel_initializer=normal),
            keras.layers.Dense(1, kernel_initializer=normal),
        ]
    )
    return collection, tower


def make_step(
    collection: tfhybrid.layers.EmbeddingCollection, tower: keras.Model, element: Any
) -> Any:
    """Returns the step of (features, labels), which returns the loss."""
    weights = [*collection.trainable_variables, *tower.trainable_variables]
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(LEARNING_RATE))
    optimizer.build(weights)

    @tf.function(autograph=False, input_signature=element)
    def step(features: dict[str, Any], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            embedded = collection({name: features[name] for name in collection.features})
            dense = [features["dense"]] if "dense" in features else []
            logits = tower(tf.concat([embedded, *dense], axis=-1))
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        optimizer.apply(gradients, weights)
        return loss

    return step


def as_dataset(batches: Any, element: Any) -> tf.data.Dataset:
    """Returns batches in NumPy as a data set that is read ahead."""

    def tensors() -> Iterator[Any]:
        for features, labels in batches:
            yield {name: _tensor(values) for name, values in features.items()}, labels

    made = tf.data.Dataset.from_generator(tensors, output_signature=element)
    return made.prefetch(READ_AHEAD)


def element_of(workload: Workload) -> Any:
    """Returns the specs of a batch."""
    specs: dict[str, Any] = {
        name: tf.RaggedTensorSpec([None, None], tf.int64, 1, tf.int64)
        if is_bag
        else tf.TensorSpec([None, 1], tf.int64)
        for name, (_, is_bag) in workload.tables().items()
    }
    if workload.dense:
        specs["dense"] = tf.TensorSpec([None, workload.dense], tf.float32)
    return specs, tf.TensorSpec([None, 1], tf.float32)


def _tensor(values: Any) -> Any:
    if isinstance(values, Ragged):
        return tf.RaggedTensor.from_row_splits(values.values, values.splits, validate=False)
    return values


class Trained:
    """Trains batch after batch, and notes what each waited for.

    Args:
        step: Of a batch.
        batches: All of them.
    """

    def __init__(self, step: Any, batches: Iterator[Any]) -> None:
        self._step = step
        self._batches = batches
        self._loss: tf.Tensor | None = None
        self.input_seconds = 0.0

    def once(self) -> None:
        """Waits for a batch, and trains it."""
        start = time.perf_counter()
        batch = next(self._batches)
        self.input_seconds += time.perf_counter() - start
        self._loss = self._step(*batch)

    def wait(self) -> None:
        """Waits until the last step is done."""
        assert self._loss is not None
        self._loss.numpy()

    def counted(self) -> dict[str, float]:
        """Returns what only grows: seconds of waiting, and bytes of rows and by sender."""
        return {
            "input_seconds": self.input_seconds,
            "rows_seconds": native.phase_times()["fetch"],
            "fetched_bytes": native.counters()["fetched_bytes"],
            **{f"from {host}": count for host, count in received_by_host().items()},
        }


def main() -> None:
    """Runs on every rank; rank 0 prints one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="{}", help="fields of a Workload, in JSON")
    parser.add_argument("--source", default="", help="HOST:PORT of the source of samples")
    parser.add_argument("--delivery", default="push", help="who speaks first of a batch's rows")
    parser.add_argument("--staleness", type=int, default=0, help="updates that rows may lack")
    parser.add_argument("--sharded", action="store_true", help="each row on one host")
    options = parser.parse_args()
    workload = Workload(**json.loads(options.workload))
    tfhybrid.init()
    collection, tower = build(workload, options.sharded)
    arguments = {"workload": dataclasses.asdict(workload), "address": options.source}
    data = tfhybrid.data.from_nodes(
        train_data,
        collection,
        arguments=arguments,
        delivery=options.delivery,
        ahead=READ_AHEAD,
        staleness=options.staleness,
    )
    element = element_of(workload)
    length = len(data)
    if not isinstance(data, tf.data.Dataset):
        data = as_dataset(data, element)
    run = Trained(make_step(collection, tower, element), iter(data))
    for _ in range(length - workload.measured - SURPLUS):
        run.once()
    before = run.counted()
    windows = timing.time_windows(workload, [run.once] * workload.measured, run.wait)
    after = run.counted()
    grown = {
        name: (value - before.get(name, 0)) / workload.measured for name, value in after.items()
    }
    of_ranks = tfhybrid.distributed.allgather_object(grown)
    names = sorted({name for each in of_ranks for name in each})
    mean = {name: float(np.mean([each.get(name, 0.0) for each in of_ranks])) for name in names}
    timing.print_result(
        "roles",
        workload,
        windows,
        tfhybrid.distributed.allgather_object,
        tfhybrid.rank(),
        per_step=mean,
    )


if __name__ == "__main__":
    main()
