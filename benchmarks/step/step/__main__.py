"""Samples per second of a training step: bound, plain Horovod, TFRA and tfhybrid, interleaved.

python -m benchmarks.step.step [--ranks 2] [--rounds 3] [--ids uniform] [--sides bound tfhybrid]
"""

from __future__ import annotations

import argparse
import logging

from rich.console import Console
from rich.table import Table

from benchmarks.step.step import sides
from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.step.step")
DEFAULT_SIDES = ["bound", "plain", "plain-keras3", "tfra", "tfhybrid"]


def show(summary: sides.Summary, results: sides.Runs, title: str) -> None:
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
            sides.ratio(row["to_bound"]),
            sides.ratio(row["to_better_peer"]),
        )
    Console().print(table)


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/step.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step.step", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=sides.SIDES, default=DEFAULT_SIDES)
    parser.add_argument("--name", default="step", help="name of the result file")
    # What this parser does not know goes to every side: see benchmarks/step/step/model.py.
    arguments, options = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    def run(name: str) -> dict[str, object]:
        side = sides.SIDES[name]
        own = [*side.options, *options]
        return launch.run_side(
            side.module, own, arguments.ranks, side.python(), variables=side.variables
        )

    results = sides.run_rounds(arguments.sides, arguments.rounds, run)
    summary = sides.summarize(results)
    title = f"{arguments.ranks} ranks, {arguments.rounds} rounds {' '.join(options)}"
    show(summary, results, title)
    setting = {"ranks": arguments.ranks, "rounds": arguments.rounds, "options": options}
    path = launch.write_result(
        arguments.name, {"setting": setting, "summary": summary, "runs": results}
    )
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
