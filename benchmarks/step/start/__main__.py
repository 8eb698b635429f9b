"""Seconds from a process's start to its end with one update read: by ctypes alone, and with Keras.

python -m benchmarks.step.start [--rounds 9]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.table import Table

from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.step.start")
SIDES = {
    "ctypes alone": "benchmarks.step.start.bare",
    "with Keras": "benchmarks.step.start.with_keras",
}


def measure(module: str) -> float:
    """Returns the seconds that a process takes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-bench-") as directory:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", module, directory], check=True, capture_output=True)
        return time.perf_counter() - started


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/start.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(arguments.rounds):
        for side, module in SIDES.items():
            seconds[side].append(measure(module))
    table = Table(title="seconds of a process that does one step")
    for heading in ("side", "least", "median", "most"):
        table.add_column(heading, justify="left" if heading == "side" else "right")
    for side, all_of_it in seconds.items():
        figures = (min(all_of_it), statistics.median(all_of_it), max(all_of_it))
        table.add_row(side, *(f"{figure:.2f}" for figure in figures))
    Console().print(table)
    path = launch.write_result("start", {"rounds": arguments.rounds, "seconds": seconds})
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
