"""What the sides of the step benchmark in TensorFlow share: the dense tower, and how they run."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Iterable

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from benchmarks.step.step import timing
from benchmarks.step.step.workload import Batches, StepConfig, add_options, config_in

__all__ = [
    "Feed",
    "Step",
    "StepConfig",
    "add_options",
    "build_tower",
    "config_of",
    "log_loss",
    "measure",
    "share_threads",
]


def config_of(arguments: argparse.Namespace) -> StepConfig:
    """Returns the `StepConfig` in parsed arguments, with its thread count applied."""
    config = config_in(arguments)
    if config.threads:
        tf.config.threading.set_intra_op_parallelism_threads(config.threads)
    return config


def share_threads(local_size: int) -> None:
    """Gives each rank of a host its share of the processors, as `tfhybrid.init` does.

    Args:
        local_size: number of ranks on this host.
    """
    if not tf.config.threading.get_intra_op_parallelism_threads():
        processors = len(os.sched_getaffinity(0))
        tf.config.threading.set_intra_op_parallelism_threads(max(1, processors // local_size))


def build_tower(config: StepConfig) -> keras.Model:
    """Returns the dense part: `[batch, features * dim]` -> 256 -> 128 -> one logit."""
    # TFRA replaces the call of Keras's VarianceScaling, the default, by one that fails on Keras 3.
    normal = keras.initializers.RandomNormal(stddev=0.05, seed=0)
    return keras.Sequential(
        [
            keras.Input((config.features * config.dim,)),
            keras.layers.Dense(256, activation="relu", kernel_initializer=normal),
            keras.layers.Dense(128, activation="relu", kernel_initializer=normal),
            keras.layers.Dense(1, kernel_initializer=normal),
        ]
    )


def log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns the mean log loss of the batch."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))


Step = Callable[..., tf.Tensor]
Feed = Callable[[np.ndarray], object]


Batch = tuple[object, tf.Tensor]


def filled(config: StepConfig, step: Step, feed: Feed, count: int) -> list[Batch]:
    """Fills the tables, and returns batches to measure.

    Args:
        config: the workload.
        step: trains once on (ids as `feed` made them, labels) and returns the loss.
        feed: turns ids `[features, batch]` into the tensors that `step` wants.
        count: number of batches to return.
    """
    batches = Batches(config, hvd.rank(), hvd.size())
    for ids, labels in batches.fill():
        step(feed(ids), tf.constant(labels))
    return [(feed(ids), tf.constant(labels)) for ids, labels in batches.measured(count)]


def measure(
    side: str,
    config: StepConfig,
    step: Step,
    feed: Feed,
    ahead: Callable[[list[Batch]], Iterable[Batch]] = iter,
    count: Callable[[], dict[str, float]] = dict,
) -> None:
    """Fills the tables, then times the windows.

    Args:
        side: name of the side in the result.
        config: the workload.
        step: trains once on (ids as `feed` made them, labels) and returns the loss.
        feed: turns ids `[features, batch]` into the tensors that `step` wants; not timed.
        ahead: returns the timed batches again, and may look at those to come; this is timed.
        count: returns numbers that only grow; the result has how much each grew per timed step.
    """
    prepared = filled(config, step, feed, config.steps * (config.windows + 1))
    losses: list[tf.Tensor] = []

    def train(ids: object, labels: tf.Tensor) -> None:
        losses[:] = [step(ids, labels)]

    before = count()
    windows = timing.time_windows(
        config,
        (functools.partial(train, *batch) for batch in ahead(prepared)),
        wait=lambda: losses[0].numpy(),
    )
    counted = {name: (value - before[name]) / len(prepared) for name, value in count().items()}
    timing.print_result(
        side, config, windows, hvd.allgather_object, hvd.rank(), keras=keras.__version__, **counted
    )
