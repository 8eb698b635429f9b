"""Saving a table of 2 GB: bandwidth against `dd`, and how long a step waits while it is written."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

import tfhybrid
from benchmarks.support.launch import write_result
from tfhybrid.checkpoint.manager import CheckpointManager
from tfhybrid.data import Position

DIM = 16
STEP_KEYS = 65536
BASELINE_STEPS = 40
MEGABYTE = 1e6


class Training:
    """A model of one table that is trained on random keys that it has rows for."""

    def __init__(self, rows: int) -> None:
        tfhybrid.init()
        table = tfhybrid.TableConfig(DIM, optimizer=tfhybrid.optimizers.Adagrad(0.1))
        layer = tfhybrid.layers.Embedding(table, name="item")
        inputs = keras.Input((1,), dtype="int64")
        self.model = keras.Model(inputs, layer(inputs))
        self.model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        self.model.optimizer.build(self.model.trainable_variables)
        self._random = np.random.default_rng(1)
        self._rows = rows
        self.table = layer.table

        @tf.function(autograph=False)
        def step(keys: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(keys))
            gradients = tape.gradient(loss, layer.trainable_variables)
            self.model.optimizer.apply(gradients, layer.trainable_variables)
            return loss

        self._step = step
        for first in range(0, rows, 1 << 20):
            step(tf.range(first, min(first + (1 << 20), rows), dtype=tf.int64))

    def step(self) -> float:
        """Makes a step and returns its milliseconds; it includes the wait for the step before."""
        keys = tf.constant(self._random.integers(self._rows, size=STEP_KEYS))
        started = time.perf_counter()
        float(self._step(keys))
        return 1e3 * (time.perf_counter() - started)


def seconds_of_dd(directory: Path, size: int) -> float:
    """Returns how long `dd` takes to write and sync as many bytes to the same disk."""
    path = directory / "dd"
    blocks = f"count={size // (1 << 22)}"
    started = time.perf_counter()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={path}", "bs=4M", blocks, "conv=fdatasync"],
        check=True,
        capture_output=True,
    )
    seconds = time.perf_counter() - started
    path.unlink()
    return seconds


def measure(training: Training, directory: Path) -> dict[str, float]:
    """One round: `dd`, a save that training waits for, and one that it does not wait for."""
    baseline = [training.step() for _ in range(BASELINE_STEPS)]
    size = sum(
        (training.table.rows * width)
        for width in (8, 4 * DIM, 4 * DIM * training.table.state_slots)
    )
    dd = seconds_of_dd(directory, size)
    manager = CheckpointManager(training.model, directory, max_to_keep=1, background=False)
    started = time.perf_counter()
    manager.save(Position(0, 0))
    stopped = time.perf_counter() - started

    manager.background = True
    started = time.perf_counter()
    manager.save(Position(0, 1))
    freeze = time.perf_counter() - started
    during = []
    while manager.busy:
        during.append(training.step())
    manager.wait()
    return {
        "bytes": size,
        "dd_mb_per_second": size / dd / MEGABYTE,
        "save_mb_per_second": size / stopped / MEGABYTE,
        "of_dd": dd / stopped,
        "stopped_save_seconds": stopped,
        "freeze_ms": 1e3 * freeze,
        "step_ms_median": float(np.median(baseline)),
        "step_ms_median_while_saving": float(np.median(during)),
        "step_ms_longest_while_saving": max(during),
        "longest_step_of_stopped_save": max(*during, 1e3 * freeze) / (1e3 * stopped),
        "steps_while_saving": len(during),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="on the disk that is measured")
    arguments = parser.parse_args()
    training = Training(arguments.rows)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        rounds = [measure(training, Path(directory)) for _ in range(arguments.rounds)]
    medians = {name: float(np.median([each[name] for each in rounds])) for name in rounds[0]}
    table = Table("", "median", "of each round", title=f"{medians['bytes'] / 1e9:.1f} GB")
    for name, median in medians.items():
        table.add_row(
            name.replace("_", " "),
            f"{median:,.3g}" if median < 1e4 else f"{median:,.0f}",
            ", ".join(f"{each[name]:,.4g}" for each in rounds),
        )
    console = Console()
    console.print(table)
    console.print(write_result("checkpoint", {"rows": arguments.rows, "rounds": rounds}))


if __name__ == "__main__":
    main()
