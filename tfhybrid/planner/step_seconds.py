"""Measurement of the tables' part of a step on this host, by a job with tables but no model.

`python -m tfhybrid.planner.step_seconds WORK` runs one rank; WORK is a `MeasuredWork` as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tfhybrid.config import TableConfig
from tfhybrid.config.row_policy import Eviction
from tfhybrid.errors import TfhybridError

if TYPE_CHECKING:
    from tfhybrid.config.table_optimizers import SparseOptimizer
    from tfhybrid.layers import EmbeddingCollection

_BLOCK = 1 << 18  # rows written at a time
_BATCHES = 16  # different batches, which are then repeated
_WARM_UP = 5
_SECONDS = 3.0


@dataclasses.dataclass(frozen=True)
class MeasuredWork:
    """Parameters of the measured job, equal on all ranks.

    Args:
        tables: Number of tables.
        rows: Rows of each table before the first step.
        dim: Length of an embedding.
        optimizer: Name of the tables' optimizer, as in `tfhybrid plan`.
        keys: Keys of a rank's batch, in each table.
        exponent: Exponent of the keys' Zipf distribution; see `step_traffic.distinct_keys`.
        bfloat16: Whether gradients are sent as bfloat16.
        history: Whether rows have a history, as with admission or eviction.
    """

    tables: int
    rows: int
    dim: int
    optimizer: str
    keys: int
    exponent: float
    bfloat16: bool
    history: bool


def measure(work: MeasuredWork, ranks: int) -> float:
    """Runs the job on this host, and returns the seconds of a step (lookup and update).

    Args:
        work: Parameters of the job.
        ranks: Number of ranks.

    Raises:
        TfhybridError: The job failed; the message contains its last lines.
        OSError: `horovodrun` is not installed beside this Python.
    """
    horovodrun = [str(Path(sys.executable).with_name("horovodrun")), "--gloo", "-np", str(ranks)]
    rank = [sys.executable, "-m", __name__, json.dumps(dataclasses.asdict(work))]
    done = subprocess.run([*horovodrun, *rank], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if "step_seconds" in line]
    if done.returncode != 0 or not lines:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise TfhybridError(f"The job that measures a step failed. Received: {last}")
    return float(json.loads(lines[0][lines[0].index("{") :])["step_seconds"])


def draw(
    rng: np.random.Generator, rows: int, shape: int | tuple[int, ...], exponent: float
) -> np.ndarray:
    """Draws keys below `rows` from the Zipf distribution that the plan assumes.

    `data.IdSpace` cannot be used: its distribution is smoothed, so the number of distinct keys
    differs.

    Args:
        rng: Source of random numbers.
        rows: Number of keys.
        shape: Shape of the result, int64.
        exponent: Exponent of the distribution; see `step_traffic.distinct_keys`.

    Example:

    >>> int(draw(np.random.default_rng(1), 10, 1000, 1.2).max())
    9
    """
    reached = np.cumsum(np.arange(1, rows + 1) ** -exponent)
    return np.searchsorted(reached, rng.random(shape) * reached[-1])


def run(work: MeasuredWork) -> float:
    """Starts and ends the job as one of its ranks; returns the seconds of a step of its tables."""
    import tensorflow as tf

    from tfhybrid import distributed, job, layers, optimizers

    job.init()
    eviction = Eviction(unseen_steps=10**9) if work.history else None
    config = TableConfig(work.dim, optimizer=_optimizer_of(work.optimizer), eviction=eviction)
    names = [f"table_{number}" for number in range(work.tables)]
    layer = layers.EmbeddingCollection(dict.fromkeys(names, config))
    wire = "bfloat16" if work.bfloat16 else "float32"
    optimizer = optimizers.DistributedOptimizer("sgd", wire_dtype=wire)
    rng = np.random.default_rng(distributed.rank())
    layer.build(dict.fromkeys(names, (work.keys,)))
    optimizer.build(layer.trainable_variables)
    _fill(layer, work.rows)
    batches = draw(rng, work.rows, (_BATCHES, work.tables, work.keys), work.exponent)
    drawn = [dict(zip(names, map(tf.constant, batch), strict=True)) for batch in batches]

    def train(keys: dict[str, tf.Tensor]) -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each) for each in layer(keys).values()])
        variables = layer.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    step = tf.function(train)
    for number in range(_WARM_UP):
        step(drawn[number])
    started = time.perf_counter()
    step(drawn[0])
    steps = _agreed_steps(time.perf_counter() - started)
    started = time.perf_counter()
    for number in range(steps):
        step(drawn[number % _BATCHES])
    seconds = (time.perf_counter() - started) / steps
    job.shutdown()
    return seconds


def _agreed_steps(seconds: float) -> int:
    """Returns the number of steps to measure; rank 0 chooses it for all ranks."""
    from tfhybrid import distributed

    with distributed.call("the planner's measurement"):
        return distributed.broadcast_object(max(10, min(2000, int(_SECONDS / seconds))))


def _fill(layer: EmbeddingCollection, rows: int) -> None:
    """Writes the rows on the leader, and does not wait for them: the first lookup does.

    Every rank must call it.
    """
    from tfhybrid import distributed
    from tfhybrid.store import RowBlock

    if distributed.local_rank() == 0:
        for table in layer.tables.values():
            table.writer.reserve(rows)
            for first in range(0, rows, _BLOCK):
                keys = np.arange(first, min(rows, first + _BLOCK))
                table.writer.write_rows(
                    RowBlock(keys, np.zeros((len(keys), table.dim), np.float32), None)
                )
    with distributed.call("the planner's tables"):
        distributed.barrier()


def _optimizer_of(name: str) -> SparseOptimizer:
    from tfhybrid import optimizers

    match name:
        case "momentum":
            return optimizers.SGD(0.01, momentum=0.9)
        case "amsgrad":
            return optimizers.Adam(0.001, amsgrad=True)
        case "adamw":
            return optimizers.AdamW(0.001)
        case "row_adagrad":
            return optimizers.RowAdagrad(0.01)
        case _:
            return optimizers.get(name)


if __name__ == "__main__":
    seconds = run(MeasuredWork(**json.loads(sys.argv[1])))
    sys.stdout.write(json.dumps({"step_seconds": seconds}) + "\n")
