"""What options of a table add to its lookups and updates: decay, penalties, clipping and the like.

    python -m benchmarks.tables.table_options [--rows 2000000] [--rounds 10] [--calls 10]

One process, one table per variant, all with Adagrad; the variants take turns (A B C A B C ...).
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import keras
import tensorflow as tf
from rich import box
from rich.console import Console
from rich.table import Table

import tfhybrid
from benchmarks.support import launch
from benchmarks.tables.lookup import tfhybrid_lookup, turns, workload

# Options of the optimizer, and of the table.
VARIANTS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "plain": ({}, {}),
    "weight_decay": ({"weight_decay": 1e-3}, {}),
    "L2": ({}, {"regularizer": keras.regularizers.L2(1e-5)}),
    # This one updates all rows, however many keys come.
    "every_row": ({}, {"lazy": False}),
    "clipvalue": ({"clipvalue": 1e-3}, {}),
    "clipnorm": ({"clipnorm": 1e-3}, {}),
    "global_clipnorm": ({"global_clipnorm": 1e-3}, {}),
    # These two examine rows, and find none to evict.
    "unseen_steps": ({}, {"eviction": tfhybrid.Eviction(unseen_steps=10**9)}),
    "min_norm": ({}, {"eviction": tfhybrid.Eviction(min_norm=1e-12)}),
    # This one evicts as many rows as come.
    "max_rows": ({}, {"eviction": tfhybrid.Eviction(max_rows=1_500_000, every_steps=64)}),
    "admission": ({}, {"admission": tfhybrid.Admission(2)}),
}


def make_operations(name: str, rows: int) -> dict[str, turns.Operation]:
    """Makes a variant's table, with that many rows, and returns what is timed."""
    options, of_table = VARIANTS[name]
    config = tfhybrid.TableConfig(workload.DIM, **of_table)
    layer = tfhybrid.layers.Embedding(config, name=name)
    layer.build((workload.KEYS,))
    operations = tfhybrid_lookup.make_operations(layer, **options)
    for _ in range(2 if config.admission else 1):
        for keys in workload.fill(rows):
            operations["create"](tf.constant(keys))
    return operations


def take_turn(operation: turns.Operation, keys: list[tf.Tensor]) -> list[float]:
    """Returns the milliseconds of each call; the first does not count."""
    times = []
    for batch in keys:
        start = time.perf_counter()
        operation(batch).numpy()
        times.append(1e3 * (time.perf_counter() - start))
    return times[1:]


def measure(
    rows: int, rounds: int, calls: int, variants: list[str]
) -> dict[str, dict[str, list[float]]]:
    """Returns the milliseconds of all calls of each operation and variant."""
    sides = {name: make_operations(name, rows) for name in variants}
    found: dict[str, dict[str, list[float]]] = {}
    for operation in ("lookup", "update"):
        found[operation] = {name: [] for name in sides}
        for first in range(0, rounds * (calls + 1), calls + 1):
            keys = [workload.keys("update", rows, first + call) for call in range(calls + 1)]
            for name, operations in sides.items():
                found[operation][name] += take_turn(
                    operations[operation], [*map(tf.constant, keys)]
                )
    return found


def main() -> None:
    """Parses the command line, runs, prints and writes the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables.table_options")
    for name, default in (("rows", 2_000_000), ("rounds", 10), ("calls", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=[*VARIANTS])
    arguments = parser.parse_args()
    workload.check_rows(parser, arguments.rows)
    tfhybrid.init()
    found = measure(**vars(arguments))
    table = Table("operation", "variant", "ms", "/ first", "p99 ms", box=box.SIMPLE)
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for operation, of_variant in found.items():
        first = statistics.median(next(iter(of_variant.values())))
        for name, times in of_variant.items():
            median, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
            summary.setdefault(operation, {})[name] = {"median": median, "p99": p99}
            table.add_row(operation, name, f"{median:.2f}", f"{median / first:.2f}", f"{p99:.2f}")
    Console().print(table)
    launch.write_result("table_options", {"setting": vars(arguments), "milliseconds": summary})


if __name__ == "__main__":
    main()
