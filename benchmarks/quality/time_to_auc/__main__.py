"""Seconds and samples until DeepFM on Frappe_x1 first has a test AUC, beside its peers.

    python -m benchmarks.quality.time_to_auc [--ranks 2] [--seeds 0 1 2 3 4] [--rates 1e-3 3e-3]

All sides train the same model on the same batches, by turns. Each has the learning rate with which
it needs the fewest samples to the highest target on the validation split, with a seed of its own.
The sides are plain Keras with Horovod, TorchRec and tfhybrid.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.quality.time_to_auc import numbered
from benchmarks.support import launch
from examples.click_training import REGULARIZED
from tfhybrid.data.archives import open_frappe

LOGGER = logging.getLogger("benchmarks.quality.time_to_auc")
SIDES = ("plain", "torchrec", "tfhybrid")
PACKAGE = "benchmarks.quality.time_to_auc"
TUNING_SEED = 100
Run = dict[str, Any]


class Sides:
    """Runs a side, each in its own environment.

    Args:
        ranks: Number of ranks.
        options: Options of every run.
    """

    def __init__(self, ranks: int, options: list[str]) -> None:
        self._ranks, self._options = ranks, options
        self._recipe = json.dumps(dataclasses.asdict(REGULARIZED))
        self._numbered = launch.ROOT / "build" / "frappe_numbered.npz"
        numbered.save(self._numbered, numbered.numbered(open_frappe())[0])

    def run(self, side: str, options: list[str]) -> Run:
        """Returns what a run of a side printed.

        Args:
            side: Name of the side.
            options: Further options of this run.
        """
        options = ["--side", side, *options, *self._options]
        if side != "torchrec":
            return launch.run_side(f"{PACKAGE}.train", options, self._ranks)
        return launch.run_side(
            f"{PACKAGE}.torchrec_deepfm",
            [*options, "--numbered", str(self._numbered), "--recipe", self._recipe],
            self._ranks,
            python=launch.peer_python(side),
        )


def best_rate(runs: list[Run], target: str) -> float:
    """Returns the rate of the run with the fewest samples to a target.

    Rates that never reach it come last, by their best AUC.

    Args:
        runs: A run for each rate.
        target: The target, a name in `reached`.
    """

    def order(run: Run) -> tuple[float, float]:
        reached = run["reached"][target]
        return reached["samples"] if reached else math.inf, -run["best_auc"]

    return min(runs, key=order)["rate"]


def summarize(runs: list[Run]) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns, for each side and target, how many runs reached it, and when.

    Median and extremes are over all runs; they are `None` where a run that never reached the target
    would be the value.
    """
    summary: dict[str, dict[str, dict[str, Any]]] = {}
    for side in dict.fromkeys(run["side"] for run in runs):
        every = [run["reached"] for run in runs if run["side"] == side]
        summary[side] = {
            target: {"runs": len(every), "reached": sum(run[target] is not None for run in every)}
            | {
                unit: _quantiles([run[target][unit] if run[target] else math.inf for run in every])
                for unit in ("seconds", "samples")
            }
            for target in every[0]
        }
    return summary


def _quantiles(values: list[float]) -> dict[str, float | None]:
    quantiles = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: None if math.isinf(value) else value for name, value in quantiles.items()}


def table_of(summary: dict[str, dict[str, dict[str, Any]]], rates: dict[str, float]) -> Table:
    """Builds a row for each target and side."""
    table = Table(title="Frappe_x1, DeepFM: until the test AUC is first reached")
    table.add_column("AUC")
    table.add_column("side")
    for heading in ("rate", "runs", "seconds", "least", "most", "samples", "least", "most"):
        table.add_column(heading, justify="right")
    for target in next(iter(summary.values())):
        for side, row in ((side, targets[target]) for side, targets in summary.items()):
            table.add_row(
                target,
                side,
                f"{rates[side]:g}",
                f"{row['reached']} of {row['runs']}",
                *("-" if value is None else f"{value:.1f}" for value in row["seconds"].values()),
                *("-" if value is None else f"{value:,.0f}" for value in row["samples"].values()),
            )
    return table


def main() -> None:
    """Chooses rates, runs, prints, and writes `benchmarks/results/time_to_auc.json`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality.time_to_auc", description=__doc__
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-4, 1e-3, 3e-3, 1e-2])
    parser.add_argument("--targets", type=float, nargs="+", default=[0.979, 0.981])
    parser.add_argument("--name", default="time_to_auc", help="name of the result file")
    # What this parser does not know goes to every run: see train.py.
    arguments, options = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options += ["--targets", *map(str, arguments.targets)]
    sides = Sides(arguments.ranks, options)

    def run(side: str, part: str, rate: float, seed: int) -> Run:
        own = ["--part", part, "--rate", str(rate), "--seed", str(seed)]
        result = sides.run(side, own)
        LOGGER.info(
            "%s, %s, rate %g, seed %d: best AUC %.4f, %s",
            *(side, part, rate, seed, result["best_auc"], result["reached"]),
        )
        return result

    tuned = [run(side, "valid", r, TUNING_SEED) for r in arguments.rates for side in SIDES]
    highest = f"{max(arguments.targets):g}"
    rates = {
        side: best_rate([run for run in tuned if run["side"] == side], highest) for side in SIDES
    }
    runs = [run(side, "test", rates[side], seed) for seed in arguments.seeds for side in SIDES]
    summary = summarize(runs)
    Console(width=120).print(table_of(summary, rates))
    setting = {"ranks": arguments.ranks, "seeds": arguments.seeds, "options": options}
    path = launch.write_result(
        arguments.name,
        {"setting": setting, "rates": rates, "summary": summary, "tuning": tuned, "runs": runs},
    )
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
