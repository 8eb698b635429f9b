"""Rows that lack up to k updates: test AUC of DeepFM on Frappe_x1 with data nodes, by k.

    python -m benchmarks.quality.staleness [--staleness 0 1 4 16] [--seeds 3] [--samples N]
        [--batch 4096] [--ranks 2]

Two embedding nodes, a data node and the ranks are processes of this machine. Each run is a job of
its own, with fresh tables.
"""

from __future__ import annotations

import argparse
import logging
import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.roles.roles.site import nodes, site
from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.quality.staleness")
SCRIPT = "benchmarks.quality.staleness.train"
Run = dict[str, Any]


def table_of(runs: Sequence[Run], seeds: Sequence[int]) -> Table:
    """Builds a row for each staleness."""
    table = Table(title="Frappe_x1, DeepFM with data nodes: test AUC")
    for column in (
        "k",
        *(f"seed {seed}" for seed in seeds),
        *("mean", "to the first", "log loss", "missing, median", "at most", "ms/step"),
    ):
        table.add_column(column, justify="right")
    first = None
    for staleness in dict.fromkeys(run["staleness"] for run in runs):
        same = [run for run in runs if run["staleness"] == staleness]
        mean = statistics.mean(run["auc"] for run in same)
        first = mean if first is None else first
        missing = [run["missing"] or {"median": 0, "most": 0} for run in same]
        table.add_row(
            str(staleness),
            *(f"{run['auc']:.4f}" for run in same),
            f"{mean:.4f}",
            f"{mean - first:+.4f}",
            f"{statistics.mean(run['log_loss'] for run in same):.4f}",
            str(round(statistics.median(each["median"] for each in missing))),
            str(max(each["most"] for each in missing)),
            f"{statistics.median(run['milliseconds_per_step'] for run in same):.0f}",
        )
    return table


def main() -> None:
    """Runs all with every seed, prints, and writes `benchmarks/results/staleness.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 4, 16])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... of each")
    parser.add_argument("--samples", type=int, default=0, help="of each part; 0: all")
    parser.add_argument("--batch", type=int, default=4096, help="samples of a step")
    parser.add_argument("--epochs", type=int, help="at most")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    runs: list[Run] = []
    with site("") as place, nodes(place, SCRIPT):
        for seed in range(arguments.seeds):
            for staleness in arguments.staleness:
                told = ["--staleness", staleness, "--seed", seed, "--samples", arguments.samples]
                told += ["--reads", place.folder / f"reads-{seed}-{staleness}"]
                told += ["--batch", arguments.batch]
                if arguments.epochs is not None:
                    told += ["--epochs", arguments.epochs]
                run = launch.run_side(SCRIPT, [*map(str, told)], arguments.ranks)
                runs.append({"staleness": staleness, **run})
                LOGGER.info("seed %d, staleness %d: AUC %.4f", seed, staleness, run["auc"])
    Console().print(table_of(runs, range(arguments.seeds)))
    options = {name: getattr(arguments, name) for name in ("samples", "ranks", "batch", "epochs")}
    path = launch.write_result("staleness", options | {"runs": runs})
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
