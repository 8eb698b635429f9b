"""Every step's time while one table grows from 1 to 20 million rows in training.

python -m benchmarks.tables.growth [--ranks 1] [--first 1000000] [--last 20000000] [--new 0.5]
"""

from __future__ import annotations

import argparse
import itertools
import logging

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.support import launch
from benchmarks.tables.growth import plot

LOGGER = logging.getLogger("benchmarks.tables.growth")
LIMIT = 5  # no step should be longer than this many medians
SLOWEST = 8


def summarize(run: dict[str, object]) -> dict[str, object]:
    """Returns the distribution of the steps, the slowest ones, and bytes by stats and by kernel."""
    milliseconds = np.array(run["milliseconds"])
    median = float(np.median(milliseconds))
    slowest = np.argsort(milliseconds)[::-1][:SLOWEST]
    last = run["stats"][-1]
    return {
        "steps": len(milliseconds),
        "median_milliseconds": round(median, 2),
        "p99_milliseconds": round(float(np.percentile(milliseconds, 99)), 2),
        "max_milliseconds": round(float(milliseconds.max()), 2),
        "max_to_median": round(float(milliseconds.max()) / median, 2),
        "steps_over_limit": int((milliseconds > LIMIT * median).sum()),
        "slowest": [
            {"rows": run["rows"][step], "milliseconds": round(float(milliseconds[step]), 2)}
            for step in slowest
        ],
        "rows": last["rows"],
        "index_bytes_per_row": round(last["index_bytes"] / last["rows"], 2),
        "table_bytes": last["bytes"],
        "peak_bytes": run["peak_bytes"],
        "peak_to_table": round(run["peak_bytes"] / last["bytes"], 3),
    }


def show(summary: dict[str, object], ranks: int) -> None:
    """Prints the summary as two small tables."""
    table = Table(title=f"{ranks} rank(s), {summary['steps']} steps to {summary['rows']:,} rows")
    for heading in ("median ms", "p99 ms", "max ms", "max / median", f"> {LIMIT} medians"):
        table.add_column(heading, justify="right")
    times = [f"{summary[f'{name}_milliseconds']:.1f}" for name in ("median", "p99", "max")]
    table.add_row(*times, f"{summary['max_to_median']:.2f}", str(summary["steps_over_limit"]))
    Console().print(table)
    slowest = Table(title="slowest steps")
    slowest.add_column("rows before", justify="right")
    slowest.add_column("ms", justify="right")
    for step in summary["slowest"]:
        slowest.add_row(f"{step['rows']:,}", f"{step['milliseconds']:.1f}")
    Console().print(slowest)


def show_bytes(stats: list[dict[str, int]], summary: dict[str, object]) -> None:
    """Prints how the index grew, and what the table takes by stats and at most."""
    table = Table(title="index over time")
    for heading in ("rows", "index MiB", "bytes per row", "table MiB"):
        table.add_column(heading, justify="right")
    grown = [
        now
        for before, now in itertools.pairwise(stats)
        if now["index_bytes"] != before["index_bytes"]
    ]
    for now in [stats[0], *grown, stats[-1]]:
        table.add_row(
            f"{now['rows']:,}",
            f"{now['index_bytes'] / 2**20:,.0f}",
            f"{now['index_bytes'] / now['rows']:.1f}",
            f"{now['bytes'] / 2**20:,.0f}",
        )
    Console().print(table)
    LOGGER.info(
        "shared memory in use at most: %.0f MiB, %.3f of what stats say at the end",
        summary["peak_bytes"] / 2**20,
        summary["peak_to_table"],
    )


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/growth.{json,png}`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables.growth", description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--name", default="growth", help="name of the result file")
    # What this parser does not know goes to every rank: see benchmarks/tables/growth/train.py.
    arguments, options = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run = launch.run_side("benchmarks.tables.growth.train", options, arguments.ranks)
    summary = summarize(run)
    show(summary, arguments.ranks)
    show_bytes(run["stats"], summary)
    setting = {"ranks": arguments.ranks, "options": options}
    result = {"setting": setting, "summary": summary, "run": run}
    path = launch.write_result(arguments.name, result)
    plot.save(run, summary["median_milliseconds"], path.with_suffix(".png"))
    LOGGER.info("%s, %s", path.relative_to(launch.ROOT), path.with_suffix(".png").name)


if __name__ == "__main__":
    main()
