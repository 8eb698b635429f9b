"""Samples per second of a training step: bound, plain Horovod, TFRA and tfhybrid, interleaved.

    python -m benchmarks.step [--ranks 2] [--rounds 3] [--ids uniform] [--sides bound tfhybrid]

The sides run interleaved (A B C D A B C D ...), each time in a fresh horovodrun, so that a drift of
the machine meets all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import statistics

from rich.console import Console
from rich.table import Table

from benchmarks import launch

LOGGER = logging.getLogger("benchmarks.step")


@dataclasses.dataclass(frozen=True)
class Side:
    """A module to run, its own options, and whether it lives in TFRA's environment."""

    module: str
    options: tuple[str, ...] = ()
    in_tfra: bool = False


SIDES = {
    "bound": Side("benchmarks.step.bound"),
    "plain": Side("benchmarks.step.plain_horovod"),
    "plain-keras3": Side("benchmarks.step.plain_horovod", ("--adagrad", "keras3")),
    "plain-one": Side("benchmarks.step.plain_horovod", ("--layout", "one")),
    "tfra": Side("benchmarks.step.tfra", in_tfra=True),
    "tfra-each": Side("benchmarks.step.tfra", ("--layout", "each"), in_tfra=True),
    "tfhybrid": Side("benchmarks.step.tfhybrid_step"),
}
DEFAULT_SIDES = ["bound", "plain", "plain-keras3", "tfra", "tfhybrid"]


def run_rounds(
    names: list[str], options: list[str], ranks: int, rounds: int
) -> dict[str, list[dict[str, object]]]:
    """Runs every side `rounds` times, interleaved; a side that fails drops out with a warning."""
    results: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    failed: set[str] = set()
    for number in range(1, rounds + 1):
        for name in names:
            if name in failed:
                continue
            side = SIDES[name]
            python = launch.tfra_python() if side.in_tfra else None
            if side.in_tfra and python is None:
                LOGGER.warning("%s left out: run benchmarks/peers/install_tfra first.", name)
                failed.add(name)
                continue
            load = os.getloadavg()[0]
            try:
                result = launch.run_side(side.module, [*side.options, *options], ranks, python)
            except launch.SideFailedError as error:
                LOGGER.warning("%s left out: %s", name, error)
                failed.add(name)
                continue
            rate = result["samples_per_second"]
            LOGGER.info(
                "round %d %-12s %9.0f samples/s (load before %.1f)", number, name, rate, load
            )
            results[name].append(result | {"load_before": round(load, 2)})
    return {name: runs for name, runs in results.items() if runs}


def median(field: str, runs: list[dict[str, object]]) -> float:
    """Returns the median of a field over a side's runs."""
    return statistics.median(run[field] for run in runs)


def summarize(results: dict[str, list[dict[str, object]]]) -> dict[str, dict[str, object]]:
    """Returns each side's median over the rounds, and its ratios to bound and better peer."""
    rates = {name: median("samples_per_second", runs) for name, runs in results.items()}
    peers = [rate for name, rate in rates.items() if name not in ("bound", "tfhybrid")]
    return {
        name: {
            "samples_per_second": round(rate),
            "milliseconds_per_step": round(median("milliseconds_per_step", results[name]), 2),
            "processor_milliseconds_per_step": round(
                median("processor_milliseconds_per_step", results[name]), 2
            ),
            "to_bound": round(rate / rates["bound"], 3) if "bound" in rates else None,
            "to_better_peer": round(rate / max(peers), 3) if peers else None,
        }
        for name, rate in rates.items()
    }


def show(summary: dict[str, dict[str, object]], results: dict[str, list], title: str) -> None:
    """Prints the comparison as a table."""
    table = Table(title=title)
    for heading in (
        "side",
        "samples/s",
        "ms/step",
        "CPU ms/step",
        "of the bound",
        "to better peer",
    ):
        table.add_column(heading, justify="left" if heading == "side" else "right")
    for name, row in summary.items():
        table.add_row(
            str(results[name][0]["side"]),
            f"{row['samples_per_second']:,}",
            f"{row['milliseconds_per_step']:.1f}",
            f"{row['processor_milliseconds_per_step']:.0f}",
            "-" if row["to_bound"] is None else f"{row['to_bound']:.2f}",
            "-" if row["to_better_peer"] is None else f"{row['to_better_peer']:.2f}",
        )
    Console().print(table)


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/step.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=DEFAULT_SIDES)
    parser.add_argument("--name", default="step", help="name of the result file")
    # What this parser does not know goes to every side: see benchmarks/step/model.py.
    arguments, options = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = run_rounds(arguments.sides, options, arguments.ranks, arguments.rounds)
    summary = summarize(results)
    title = f"{arguments.ranks} ranks, {arguments.rounds} rounds {' '.join(options)}"
    show(summary, results, title)
    setting = {"ranks": arguments.ranks, "rounds": arguments.rounds, "options": options}
    path = launch.write_result(
        arguments.name, {"setting": setting, "summary": summary, "runs": results}
    )
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
