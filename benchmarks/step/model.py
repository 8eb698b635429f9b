"""What every side of the step benchmark shares: ids, dense tower, how a step is timed."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

FILL_SEED = 1
MEASURED_SEED = 2


@dataclasses.dataclass(frozen=True)
class StepConfig:
    """The workload; equal on all sides.

    Args:
        features: number of categorical features.
        dim: columns of an embedding.
        rows: rows of all tables together; every feature gets an equal share.
        batch: samples per rank and step.
        ids: "zipf" (bounded, by inverse CDF) or "uniform".
        exponent: exponent of the Zipf law.
        windows: number of timed windows, of which the median is reported.
        steps: steps per window.
        threads: TensorFlow intra-op threads per rank; 0 shares the processors among the ranks.
    """

    features: int = 26
    dim: int = 16
    rows: int = 4_000_000
    batch: int = 4096
    ids: str = "zipf"
    exponent: float = 1.2
    windows: int = 5
    steps: int = 20
    threads: int = 0

    @property
    def rows_per_feature(self) -> int:
        """Rows of one feature's table."""
        return math.ceil(self.rows / self.features)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds one option per field of `StepConfig`."""
    for field in dataclasses.fields(StepConfig):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)


def config_of(arguments: argparse.Namespace) -> StepConfig:
    """Returns the `StepConfig` in parsed arguments, with its thread count applied."""
    names = [field.name for field in dataclasses.fields(StepConfig)]
    config = StepConfig(**{name: getattr(arguments, name) for name in names})
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


class Batches:
    """Ids and labels of one rank, as `[features, batch]` int64 and `[batch, 1]` float32.

    Args:
        config: the workload.
        rank: this rank.
        size: number of ranks.
    """

    def __init__(self, config: StepConfig, rank: int, size: int) -> None:
        self._config = config
        self._rank = rank
        self._size = size
        rows = config.rows_per_feature
        # A feature's popular ids lie anywhere in its table, as hashed or interned ids do.
        self._row_of = [
            np.random.default_rng((feature, rows)).permutation(rows)
            for feature in range(config.features)
        ]
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -config.exponent
        self._cumulative = np.cumsum(weights) / weights.sum()

    def fill(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields batches that over all ranks meet every row of every table at least once."""
        config = self._config
        per_step = config.batch * self._size
        for step in range(math.ceil(config.rows_per_feature / per_step)):
            start = step * per_step + self._rank * config.batch
            ids = np.arange(start, start + config.batch) % config.rows_per_feature
            yield self._batch(np.stack([row_of[ids] for row_of in self._row_of]), FILL_SEED)

    def measured(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields `count` batches of the configured distribution."""
        config = self._config
        random = np.random.default_rng((MEASURED_SEED, self._rank))
        for _ in range(count):
            if config.ids == "uniform":
                ids = random.integers(config.rows_per_feature, size=(config.features, config.batch))
            else:
                uniform = random.random((config.features, config.batch))
                popularity = np.searchsorted(self._cumulative, uniform, side="right")
                popularity = np.minimum(popularity, config.rows_per_feature - 1)
                ids = np.stack(
                    [row[rank] for row, rank in zip(self._row_of, popularity, strict=True)]
                )
            yield self._batch(ids, MEASURED_SEED)

    def _batch(self, ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.random.default_rng((seed, self._rank)).integers(2, size=(ids.shape[1], 1))
        return ids.astype(np.int64), labels.astype(np.float32)


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


def measure(side: str, config: StepConfig, step: Step, feed: Feed) -> None:
    """Fills the tables, then times the windows, of which the first warms caches and threads.

    Args:
        side: name of the side in the result.
        config: the workload.
        step: trains once on (ids as `feed` made them, labels) and returns the loss.
        feed: turns ids `[features, batch]` into the tensors that `step` wants; not timed.
    """
    batches = Batches(config, hvd.rank(), hvd.size())
    for ids, labels in batches.fill():
        step(feed(ids), tf.constant(labels))
    prepared = [
        (feed(ids), tf.constant(labels))
        for ids, labels in batches.measured(config.steps * (config.windows + 1))
    ]
    readings = []
    for window in range(config.windows + 1):
        for ids, labels in prepared[window * config.steps : (window + 1) * config.steps]:
            loss = step(ids, labels)
        loss.numpy()
        readings.append(read_meters())
    report(side, config, np.diff(readings, axis=0))


def read_meters() -> tuple[float, float, int, int]:
    """Returns seconds, processor seconds of this rank, and bytes this host sent and received."""
    return time.perf_counter(), time.process_time(), *traffic()


def traffic() -> tuple[int, int]:
    """Returns the bytes that left this host, and came to it, over its ranks' network interface.

    Segments that the interface cuts itself count without their headers, up to 5 % less than on a
    wire.
    """
    interface = os.environ.get("HOROVOD_GLOO_IFACE", "lo")
    # Of this process's network namespace, unlike /sys, which shows the one it was mounted in.
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            received, *_ = fields = [int(field) for field in counters.split()]
            return fields[8], received
    raise LookupError(f"No network interface {interface!r}.")


def report(side: str, config: StepConfig, windows: np.ndarray) -> None:
    """Prints rank 0's windows, the processor time of all ranks and the traffic as one JSON line.

    Args:
        side: name of the side in the result.
        config: the workload.
        windows: what `read_meters` counted in each window, `[windows, 4]`.
    """
    seconds, processor_seconds, sent, received = windows.T
    processor = sum(hvd.allgather_object(float(np.median(processor_seconds))))
    sent = max(hvd.allgather_object(float(np.mean(sent))))
    received = max(hvd.allgather_object(float(np.mean(received))))
    per_step = seconds / config.steps
    median = float(np.median(per_step))
    if hvd.rank() == 0:
        result = {
            "side": side,
            "keras": keras.__version__,
            "samples_per_second": config.batch * hvd.size() / median,
            "milliseconds_per_step": 1e3 * median,
            "processor_milliseconds_per_step": 1e3 * processor / config.steps,
            "windows_milliseconds": [round(1e3 * value, 2) for value in per_step],
        }
        if hvd.cross_size() > 1:
            # Of the hosts that send and receive most.
            result["sent_bytes_per_step"] = round(sent / config.steps)
            result["received_bytes_per_step"] = round(received / config.steps)
        print(json.dumps(result), flush=True)
