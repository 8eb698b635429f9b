"""A step on the ads shape, 300 features of mixed dims, and where its time goes.

python -m benchmarks.roles.ads [--ranks 2] [--features 300] [--batch 512] [--rounds 10]

It runs twice: as it is, and with ten features laid into one, which has ten times the keys and rows.
What costs less then grows with the number of features.
"""

from __future__ import annotations

import argparse
import logging

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.roles.ads")
FOLDS = (1, 10)


def parts_of(cuts: dict[str, float]) -> dict[str, float]:
    """Returns a step's milliseconds by part, from those of its cuts.

    Args:
        cuts: milliseconds; `forward` looks up too, `backward` goes forward too, and so on.
    """
    return {
        "lookup": cuts["lookup"],
        "pooling, tower": cuts["forward"] - cuts["lookup"],
        "backward": cuts["backward"] - cuts["forward"],
        "sparse update": cuts["sparse_step"] - cuts["backward"],
        "dense update": cuts["step"] - cuts["sparse_step"],
        "step": cuts["step"],
        "lookup, 1 key": cuts["lookup_of_one"],
    }


def summarize(run: dict[str, object]) -> dict[str, object]:
    """Returns the rates of a run and the parts of its step, by the clock and of all processors."""
    parts = parts_of(run["milliseconds"])
    processors = parts_of(run["processor_milliseconds"])
    return {
        "features": run["features"],
        "samples_per_second": round(1e3 * run["samples"] / parts["step"], 1),
        "million_keys_per_second": round(run["keys"] / parts["step"] / 1e3, 2),
        "milliseconds": {name: round(value, 2) for name, value in parts.items()},
        "processor_milliseconds": {name: round(value, 2) for name, value in processors.items()},
    }


def show(runs: list[dict[str, object]]) -> None:
    """Prints both runs side by side, and what a feature more costs with the same keys."""
    many, few = runs
    more = many["features"] - few["features"]
    table = Table("part of a step", title="ms, and what a feature more costs", box=box.SIMPLE)
    for run in runs:
        table.add_column(f"{run['features']} features", justify="right")
        table.add_column("CPU", justify="right")
    table.add_column("us a feature", justify="right")
    for part, value in many["milliseconds"].items():
        other = few["milliseconds"][part]
        table.add_row(
            part,
            f"{value:.1f}",
            f"{many['processor_milliseconds'][part]:.1f}",
            f"{other:.1f}",
            f"{few['processor_milliseconds'][part]:.1f}",
            f"{1e3 * (value - other) / more:.0f}",
        )
    Console().print(table)


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/ads.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roles.ads", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--name", default="ads", help="name of the result file")
    # What this parser does not know goes to every rank: see benchmarks/roles/ads/workload.py.
    arguments, options = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    runs = [
        launch.run_side(
            "benchmarks.roles.ads.train", [*options, "--fold", str(fold)], arguments.ranks
        )
        for fold in FOLDS
    ]
    summary = [summarize(run) for run in runs]
    show(summary)
    for run in summary:
        LOGGER.info(
            "%d features: %.0f samples/s, %.2f million keys/s",
            run["features"],
            run["samples_per_second"],
            run["million_keys_per_second"],
        )
    setting = {"ranks": arguments.ranks, "options": options}
    result = {"setting": setting, "summary": summary, "runs": runs}
    LOGGER.info("%s", launch.write_result(arguments.name, result).relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
