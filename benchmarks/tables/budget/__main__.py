"""Processor time of a key in lookup and update against a kept budget: fails if one grew.

python -m benchmarks.tables.budget [--keep]
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.storage.disk.train import NAME, opened
from benchmarks.support import launch
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import Update, UpdateChoices

LOGGER = logging.getLogger("benchmarks.tables.budget")
ROWS, DIM, KEYS, STEPS = 4_000_000, 16, 65_536, 60
MAX_GROWTH = 1.5
ATTEMPTS = 3  # a part that grew is measured again: another process may have emptied the caches
# The work of NumPy whose time is the yardstick of each part: a lookup copies rows, an update sorts
# keys and changes rows. A machine with slower memory or slower cores then is no growth.
YARDSTICKS = {"lookup": ("row",), "update": ("row", "sort")}
Costs = dict[str, float]


def measure(engine: Engine) -> Costs:
    """Returns the least processor time of each part among the steps, in nanoseconds a key.

    Processor time of all threads, unlike time on a clock, does not grow while other processes have
    the cores.
    """
    random = np.random.default_rng(2)
    update = engine.open_update("adagrad", {NAME: DIM}, UpdateChoices())
    rows = np.full((ROWS, DIM), 0.01, np.float32)  # each page has memory of its own
    gradients = random.normal(size=(KEYS, DIM)).astype(np.float32)
    costs: Costs = {}
    for _ in range(STEPS):
        keys = random.integers(ROWS, size=KEYS)
        parts: dict[str, Callable[[], object]] = {
            "row": lambda keys=keys: rows.take(keys, axis=0),
            "sort": lambda keys=keys: np.argsort(keys, kind="stable"),
            "lookup": lambda keys=keys: engine.lookup(NAME, DIM, keys),
            "update": lambda keys=keys: apply(engine, update, keys, gradients),
        }
        for part, work in parts.items():
            start = time.process_time()
            work()
            nanoseconds = 1e9 * (time.process_time() - start) / KEYS
            costs[part] = min(nanoseconds, costs.get(part, nanoseconds))
    return costs


def apply(engine: Engine, update: Update, keys: np.ndarray, gradients: np.ndarray) -> None:
    """Posts gradients and waits until the update is over, for its thread too."""
    before = native.phase_times()["apply"]
    update.post([keys], [gradients], [0.05], samples=len(keys))
    engine.wait(NAME)  # returns when the rows are there, a little before the thread is done
    while native.phase_times()["apply"] == before:
        time.sleep(0.0005)


def in_yardsticks(costs: Costs) -> Costs:
    """Returns the cost of each part in units of its yardstick."""
    return {
        part: costs[part] / sum(costs[each] for each in yardstick)
        for part, yardstick in YARDSTICKS.items()
    }


def grown(costs: Costs, budget: Costs) -> list[str]:
    """Returns the parts that cost more than `MAX_GROWTH` times their budget."""
    allowed = in_yardsticks(budget)
    return [part for part, own in in_yardsticks(costs).items() if own > MAX_GROWTH * allowed[part]]


def show(costs: Costs, budget: Costs) -> None:
    """Prints costs beside the budget."""
    table = Table(title=f"{KEYS:,} uniform keys of {ROWS:,} rows x {DIM}, ns of a processor a key")
    for heading in ("", "now", "budget", "yardstick", "now, in them", "budget, in them"):
        table.add_column(heading, justify="right")
    own, allowed = in_yardsticks(costs), in_yardsticks(budget)
    for part, cost in costs.items():
        ratios = (f"{own[part]:.2f}", f"{allowed[part]:.2f}") if part in own else ("", "")
        yardstick = " + ".join(YARDSTICKS.get(part, ()))
        table.add_row(part, f"{cost:.1f}", f"{budget[part]:.1f}", yardstick, *ratios)
    Console(width=110).print(table)


def main() -> None:
    """Parses the command line, measures and compares; `--keep` makes this run the budget."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables.budget", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="make this run the budget")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    costs = measured()
    if arguments.keep:
        launch.write_result("budget", {"costs": {part: round(ns, 1) for part, ns in costs.items()}})
    budget = json.loads((launch.RESULTS / "budget.json").read_text())["costs"]
    for _ in range(ATTEMPTS - 1):
        if not grown(costs, budget):
            break
        costs = measured()
    show(costs, budget)
    if parts := grown(costs, budget):
        sys.exit(f"more than {MAX_GROWTH} times the budget: {', '.join(parts)}")


def measured() -> Costs:
    """Opens an engine of its own and measures it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        options = argparse.Namespace(storage="memory", rows=ROWS, dim=DIM)
        engine = opened(directory, options)
        try:
            return measure(engine)
        finally:
            engine.close_store()


if __name__ == "__main__":
    main()
