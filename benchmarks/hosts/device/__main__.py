"""A lookup of a sharded table that gathers on the host or on a device, without a pass and with one.

    python -m benchmarks.hosts.device [--device CPU:0] [--keys 26624] [--batches 16] [--rounds 3]

Two hosts, as engines of this process, own a table. One looks up batches of keys and has the
embeddings on the device, then both apply an update of those keys. The sides run by turns, each on a
table of its own. Keys are Zipf(1.2).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from tests.support.core.sharded_hosts import Hosts
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerKind
from tfhybrid.data.lookahead import Lookahead
from tfhybrid.ops import lookup as lookup_op
from tfhybrid.ops.device_gather import lookup_on_device
from tfhybrid.ops.lookup import FeatureKeys, TableRef

NAME, WARM_UP = "item", 2
SIDES = ("host", "device", "host, pass", "device, pass")
SGD = {"kind": OptimizerKind.SGD}


def main() -> None:
    """Measures and shows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="CPU:0")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--keys", type=int, default=26 * 1024, help="of a batch")
    parser.add_argument("--batches", type=int, default=16, help="of a pass; a round is two passes")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    sent: dict[str, float] = {}
    for round_ in range(options.rounds):
        for side in SIDES:
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                found, sent[side] = measured(side, Path(folder), round_, options)
                times[side] += found
    show(times, sent, options)


def measured(
    side: str, folder: Path, seed: int, options: argparse.Namespace
) -> tuple[list[float], float]:
    """Returns the seconds of each lookup, and the rows that each sent to the device."""
    random = np.random.default_rng(seed)
    count = 2 * options.batches
    batches = [random.zipf(1.2, options.keys) for _ in range(count)]
    with Hosts(folder, [0, 1], {NAME: options.dim}, SGD) as engines:
        look_up = lookup_on(side, engines[0], options)
        updates = [engine.open_update("sgd", {NAME: options.dim}) for engine in engines]
        gradients = np.ones((options.keys, options.dim), np.float32)
        seconds = []
        for step in announced(side, batches, engines[0], options.batches):
            started = time.perf_counter()
            look_up(tf.constant(batches[step]))
            seconds.append(time.perf_counter() - started)
            for update in updates:
                update.post([batches[step]], [gradients], [0.1], samples=options.keys)
            for engine in engines:
                engine.wait(NAME)
    distinct = sum(len(np.unique(batch)) for batch in batches) / count
    return seconds[WARM_UP:], distinct if side.startswith("device") else options.keys


def announced(side: str, batches: list[np.ndarray], engine: Engine, length: int) -> Iterator[int]:
    """Yields the number of each batch, which was announced where the side has passes."""
    if not side.endswith("pass"):
        return iter(range(len(batches)))
    return Lookahead(length).over(range(len(batches)), lambda i: {NAME: batches[i]}, engine)


def lookup_on(
    side: str, engine: Engine, options: argparse.Namespace
) -> Callable[[tf.Tensor], float]:
    """Returns what looks keys up, and waits until the embeddings are on the device."""
    with tf.device("CPU:0"):
        proxy = tf.Variable(tf.zeros([0, options.dim]))
    tables = [TableRef(engine.number, NAME, options.dim, proxy.handle)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def look_up(keys: tf.Tensor) -> tf.Tensor:
        features = [FeatureKeys(keys)]
        with tf.device(options.device):
            if side.startswith("device"):
                (found,) = lookup_on_device(tables, features, [proxy.read_value()])
            else:
                (found,) = lookup_op.lookup(tables, features)
            return tf.reduce_sum(found)

    return lambda keys: float(look_up(keys))


def show(
    times: dict[str, list[float]], sent: dict[str, float], options: argparse.Namespace
) -> None:
    """Prints the medians."""
    table = Table(title=f"{options.keys:,} keys, rows of {4 * options.dim} bytes, {options.device}")
    for heading in ("", "ms", "rows to the device"):
        table.add_column(heading)
    for side in SIDES:
        milliseconds = 1e3 * statistics.median(times[side])
        table.add_row(side, f"{milliseconds:.2f}", f"{sent[side]:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
