"""The loop of a side's process: takes its turn when a line asks for it, and waits in between.

Sides live in processes and environments of their own. The driver writes "OPERATION CALLS" and
reads one line of JSON with the milliseconds of each call, by the clock and of all processors; a
side that waits for its turn is blocked in reading.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from benchmarks.tables.lookup import workload

# Works on int64 keys `[KEYS]` and returns a tensor that is there only when all work is done.
Operation = Callable[[tf.Tensor], tf.Tensor]


def parse_rows(description: str) -> int:
    """Returns the rows that the command line asks for and sets TensorFlow's threads."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    return arguments.rows


def with_gradient(operation: Operation, variable: object) -> Operation:
    """Returns an operation, and the gradient of the sum of its squares, as one."""

    @tf.function(autograph=False)
    def run(keys: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(operation(keys) ** 2)
        return tape.gradient(loss, variable).values

    return run


def serve(rows: int, operations: dict[str, Operation], count_rows: Callable[[], int]) -> None:
    """Answers the driver until it closes standard input.

    Args:
        rows: rows that the table was filled with.
        operations: what this side can do, by name.
        count_rows: returns the rows in the table, so that a table that was not filled is seen.
    """
    _answer({"ready": {"rows": count_rows(), "tensorflow": tf.__version__}})
    done = dict.fromkeys(operations, 0)
    for line in sys.stdin:
        name, count = line.split()
        # The first call of a turn wakes threads and caches that served another side before.
        calls = range(done[name], done[name] + int(count) + 1)
        done[name] = calls.stop
        batches = [tf.constant(workload.keys(name, rows, call), tf.int64) for call in calls]
        times = [_time(operations[name], batch) for batch in batches]
        milliseconds, processor_milliseconds = zip(*times[1:], strict=True)
        _answer(
            {
                "milliseconds": milliseconds,
                "processor_milliseconds": processor_milliseconds,
                "rows": count_rows(),
            }
        )


def _time(operation: Operation, batch: tf.Tensor) -> tuple[float, float]:
    """Returns the milliseconds of one call, by the clock and of all processors."""
    start, processor_start = time.perf_counter(), time.process_time()
    result = operation(batch)
    # Waits for the result if need be, and does not copy it as `.numpy()` would.
    memoryview(result)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor_start
    if not np.isfinite(result[0, 0]):
        raise FloatingPointError(f"The result is not finite. Received: {result}")
    return 1e3 * seconds, 1e3 * processor


def _answer(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)
