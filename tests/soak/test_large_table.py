"""A table of 10^8 rows, 11 GB: created, trained, saved, restored, looked up.

TFHYBRID_SOAK_ROWS sets another number. Seconds and bytes are left in build/soak/large_table.json.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import checkpoint
from tfhybrid.data import Position
from tfhybrid.settings import shm_directory

ROWS = int(float(os.environ.get("TFHYBRID_SOAK_ROWS", "1e8")))
DIM = 8
STEP = 1 << 20  # keys of a step
BYTES_PER_ROW = 8 + 4 * DIM * 2 + 43  # key, embedding, accumulator; most that the index may take
REPORT = Path(__file__).parents[2] / "build/soak/large_table.json"

pytestmark = pytest.mark.usefixtures("job")


def keys_between(begin: int, end: int) -> np.ndarray:
    """Keys that look like hashes, all different."""
    numbers = np.arange(begin, end, dtype=np.uint64)
    return (numbers * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


class PeakMemory:
    """The most memory that the job has more while the block runs, sampled: tmpfs and anonymous."""

    def __enter__(self) -> PeakMemory:
        self.bytes = 0
        self._before = self._used()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(0.1):
            self.bytes = max(self.bytes, self._used() - self._before)

    def _used(self) -> int:
        status = Path("/proc/self/status").read_text()
        anonymous = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
        return shutil.disk_usage(shm_directory()).used + 1024 * int(anonymous[1])


class Training:
    """A model of one table, and the seconds that each thing took."""

    def __init__(self) -> None:
        table = tfhybrid.TableConfig(DIM, optimizer=tfhybrid.optimizers.Adagrad(0.1))
        layer = tfhybrid.layers.Embedding(table, name="item")
        inputs = keras.Input((1,), dtype="int64")
        self.model = keras.Model(inputs, layer(inputs))
        self.model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
        self.model.optimizer.build(self.model.trainable_variables)
        self.table = layer.table
        self.seconds: dict[str, float] = {}
        gradients = tf.ones((STEP, DIM))

        @tf.function(autograph=False)
        def step(keys: tf.Tensor) -> None:
            slices = tf.IndexedSlices(gradients[: tf.size(keys)], keys)
            self.model.optimizer.apply_gradients(
                zip([slices], self.model.trainable_variables, strict=True)
            )

        self._step = step

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[what] = time.perf_counter() - started

    def train(self, rows: int) -> None:
        """One step after the other over the first `rows` keys."""
        for begin in range(0, rows, STEP):
            self._step(tf.constant(keys_between(begin, min(begin + STEP, rows))))
        self.table.lookup([0])  # waits for the last update

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        return np.concatenate([self.table.lookup(part) for part in np.array_split(keys, 20)])


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path)


def test_it_is_created_trained_saved_restored_and_looked_up(directory: Path) -> None:
    training = Training()
    with training.timed("create"):
        training.train(ROWS)
    with training.timed("train a tenth again"):
        training.train(ROWS // 10)
    stats = training.table.stats()
    assert stats.rows == ROWS
    if ROWS >= 10**7:
        assert stats.bytes <= BYTES_PER_ROW * 1.03 * ROWS

    keys = np.random.default_rng(1).permutation(keys_between(0, ROWS))[: min(ROWS, 10_000_000)]
    with training.timed("look 10 million keys up"):
        rows = training.lookup(keys)
    digest = training.table.digest()
    with training.timed("save"):
        folder = checkpoint.save(training.model, directory, Position(1, 0))
    size = sum(file.stat().st_size for file in folder.iterdir())

    seconds, stats = training.seconds, training.table.stats()
    del training  # its functions keep the tables mapped
    tfhybrid.shutdown()
    gc.collect()
    tfhybrid.init()
    training = Training()
    with PeakMemory() as peak, training.timed("restore"):
        checkpoint.restore(training.model, directory)
    training.seconds = seconds | training.seconds
    if ROWS >= 10**7:
        assert peak.bytes <= 1.2 * stats.bytes
    assert training.table.digest() == digest
    np.testing.assert_array_equal(training.lookup(keys), rows)

    report = {
        "rows": ROWS,
        "dim": DIM,
        "bytes per row in memory": round(stats.bytes / ROWS, 1),
        "bytes per row on disk": round(size / ROWS, 1),
        "peak memory of restore": round(peak.bytes / stats.bytes, 3),
        "load factor": round(stats.load_factor, 3),
        "seconds": {what: round(seconds, 1) for what, seconds in training.seconds.items()},
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1))
