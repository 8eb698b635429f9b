"""Samples per second of a training step: bound, plain Horovod, TFRA and tfhybrid, interleaved.

python -m benchmarks.step.step [--ranks 2] [--rounds 3] [--ids zipf uniform] [--sides bound ...]
"""

from __future__ import annotations

import argparse
import itertools
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


def turns_of(names: list[str], distributions: list[str]) -> dict[str, list[str]]:
    """Returns the names of the turns that count for each distribution of ids.

    A side with tables has a turn `SIDE IDS` for each distribution, a bound has one for all.

    Args:
        names: The sides.
        distributions: The distributions, such as `zipf`.
    """
    return {
        ids: [f"{name} {ids}" if sides.has_tables(name) else name for name in names]
        for ids in distributions
    }


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/step.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step.step", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=sides.SIDES, default=DEFAULT_SIDES)
    parser.add_argument(
        "--ids", nargs="+", choices=["zipf", "uniform"], default=["zipf"], help="one result of each"
    )
    parser.add_argument(
        "--name", default="step", help="name of the result file; that of uniform is NAME_uniform"
    )
    # What this parser does not know goes to every side: see benchmarks/step/step/model.py.
    arguments, options = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    def run(turn: str) -> dict[str, object]:
        name, _, ids = turn.partition(" ")
        side = sides.SIDES[name]
        own = [*side.options, *options, *(["--ids", ids] if ids else [])]
        return launch.run_side(
            side.module, own, arguments.ranks, side.python(), variables=side.variables
        )

    turns = turns_of(arguments.sides, arguments.ids)
    in_turn = list(dict.fromkeys(itertools.chain.from_iterable(turns.values())))
    runs = sides.run_rounds(in_turn, arguments.rounds, run)
    for ids, names in turns.items():
        results = {name.partition(" ")[0]: runs[name] for name in names if name in runs}
        summary = sides.summarize(results)
        title = f"{arguments.ranks} ranks, {arguments.rounds} rounds, {' '.join([ids, *options])}"
        show(summary, results, title)
        setting = {"ranks": arguments.ranks, "rounds": arguments.rounds}
        setting |= {"ids": ids, "options": options}
        path = launch.write_result(
            arguments.name if ids == "zipf" else f"{arguments.name}_{ids}",
            {"setting": setting, "summary": summary, "runs": results},
        )
        LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
