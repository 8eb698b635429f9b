"""Nanoseconds a key of lookup, merge and apply against a kept budget: what grew.

python -m benchmarks.tables.budget [--keep]
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.storage.disk.train import NAME, opened
from benchmarks.support import launch
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import UpdateChoices

LOGGER = logging.getLogger("benchmarks.tables.budget")
ROWS, DIM, KEYS, STEPS = 4_000_000, 16, 65_536, 60
GROWN = 1.15
Costs = dict[str, float]


def measure(engine: Engine) -> Costs:
    """Returns medians over the steps, ns a key; `row` is NumPy's copy of a row, a yardstick."""
    random = np.random.default_rng(2)
    update = engine.open_update("adagrad", {NAME: DIM}, UpdateChoices())
    rows = np.zeros((ROWS, DIM), np.float32)
    gradients = random.normal(size=(KEYS, DIM)).astype(np.float32)
    steps: dict[str, list[float]] = {"row": [], "lookup": [], "merge": [], "apply": []}
    for _ in range(STEPS):
        keys = random.integers(ROWS, size=KEYS)
        start = time.perf_counter()
        rows.take(keys, axis=0)
        steps["row"].append(time.perf_counter() - start)
        start = time.perf_counter()
        engine.lookup(NAME, DIM, keys)
        steps["lookup"].append(time.perf_counter() - start)
        before = native.phase_times()
        update.post([keys], [gradients], [0.05], samples=KEYS)
        engine.wait(NAME)
        after = native.phase_times()
        steps["merge"].append(after["plan"] - before["plan"])
        steps["apply"].append(after["apply"] - before["apply"])
    return {part: 1e9 * float(np.median(seconds)) / KEYS for part, seconds in steps.items()}


def show(costs: Costs, budget: Costs) -> list[str]:
    """Prints costs beside the budget; returns the parts that grew, by rows of the yardstick."""
    table = Table(title=f"{KEYS:,} uniform keys of {ROWS:,} rows x {DIM}, ns a key")
    for heading in ("", "now", "budget", "now, in rows", "budget, in rows"):
        table.add_column(heading, justify="right")
    grown = []
    for part, cost in costs.items():
        kept, own = budget.get(part, cost), cost / costs["row"]
        allowed = kept / budget.get("row", costs["row"])
        table.add_row(part, f"{cost:.1f}", f"{kept:.1f}", f"{own:.2f}", f"{allowed:.2f}")
        if own > GROWN * allowed:
            grown.append(part)
    Console().print(table)
    return grown


def main() -> None:
    """Parses the command line, measures and compares; `--keep` makes this run the budget."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables.budget", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="make this run the budget")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    path = launch.RESULTS / "budget.json"
    budget = json.loads(path.read_text())["costs"] if path.exists() else {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        engine = opened(directory, argparse.Namespace(storage="memory", rows=ROWS, dim=DIM))
        try:
            costs = measure(engine)
        finally:
            engine.close_store()
    grown = show(costs, budget)
    LOGGER.info("grew by more than 15 %%: %s", ", ".join(grown) or "nothing")
    if arguments.keep:
        launch.write_result("budget", {"costs": {part: round(ns, 1) for part, ns in costs.items()}})


if __name__ == "__main__":
    main()
