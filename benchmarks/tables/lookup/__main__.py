"""Lookup, update and creation of rows of one table: native bound, dense variable, TFRA, tfhybrid.

    python -m benchmarks.tables.lookup [--rows 4000000] [--rounds 10] [--sides dense tfhybrid]

Every side is a process that builds its table and then waits; the sides take turns (A B C A B C ...)
while all others are idle, so that a drift of the machine meets all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import statistics

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.support import launch
from benchmarks.tables.lookup import workload
from benchmarks.tables.lookup.side import Side, Turn, commands, compile_gather

LOGGER = logging.getLogger("benchmarks.tables.lookup")
SIDES = ["gather", "gather-huge", "dense", "tfra", "tfhybrid"]
SIDES_OF = {
    "lookup": ["gather", "gather-huge", "dense", "tfra", "tfhybrid"],
    "update": ["dense", "tfhybrid"],
    "create": ["tfra", "tfhybrid"],
    "bags": ["dense", "tfhybrid"],
    "bag_gradients": ["dense", "tfhybrid"],
}

BUSY = 0.7  # load above which something else takes a processor

# Every side's turns, one per round.
Turns = dict[str, list[Turn]]


def start_sides(names: list[str], rows: int, threads: int) -> list[Side]:
    """Starts the sides one after the other, each when the one before has built its table."""
    compile_gather()
    lines = commands(rows, threads)
    sides = []
    for name in names:
        if lines[name] is None:
            LOGGER.warning("%s left out: run benchmarks/support/peers/install_tfra first.", name)
            continue
        sides.append(Side(name, lines[name]))
        LOGGER.info("%-12s ready: %s", name, sides[-1].facts)
    return sides


def take_turns(sides: list[Side], operation: str, rounds: int, calls: int) -> Turns:
    """Lets all sides that know the operation take turns, `calls` calls each."""
    taking_part = [side for side in sides if side.name in SIDES_OF[operation]]
    turns: Turns = {side.name: [] for side in taking_part}
    for number in range(rounds):
        for side in taking_part:
            turns[side.name].append(side.take_turn(operation, calls))
        medians = [
            f"{name} {statistics.median(done[-1].milliseconds):.2f}" for name, done in turns.items()
        ]
        LOGGER.info("%s, round %d, ms: %s", operation, number + 1, ", ".join(medians))
    return turns


def summarize(turns: list[Turn]) -> dict[str, object]:
    """Returns a side's median call over all rounds, its slowest, and the median of each round."""
    calls = [value for turn in turns for value in turn.milliseconds]
    processors = [value for turn in turns for value in turn.processor_milliseconds]
    median = statistics.median(calls)
    return {
        "milliseconds": round(median, 3),
        "slowest_milliseconds": round(max(calls), 3),
        "processor_milliseconds": round(statistics.median(processors), 3),
        "million_rows_per_second": round(workload.KEYS / median / 1e3, 2),
        "rounds_milliseconds": [round(statistics.median(turn.milliseconds), 3) for turn in turns],
    }


def compare(turns: Turns) -> dict[str, dict[str, object]]:
    """Returns the sides' summaries with the ratios of their times to dense and to TFRA."""
    sides = {name: summarize(done) for name, done in turns.items()}
    for row in sides.values():
        for other in ("dense", "tfra"):
            row[f"to_{other}"] = (
                round(row["milliseconds"] / sides[other]["milliseconds"], 3)
                if other in sides
                else None
            )
    return sides


def show(summary: dict[str, dict[str, dict[str, object]]], rows: int) -> None:
    """Prints the comparison as a table."""
    title = f"{rows:,} rows x {workload.DIM}, {workload.KEYS:,} keys a call"
    # Narrow enough for 80 columns, which is what rich takes where there is no terminal.
    table = Table("operation", "side", title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("ms", "slowest", "CPU ms", "M rows/s", "/ dense", "/ TFRA"):
        table.add_column(heading, justify="right")
    for operation, sides in summary.items():
        for name, row in sides.items():
            ratios = [
                "-" if row[field] is None else f"{row[field]:.2f}"
                for field in ("to_dense", "to_tfra")
            ]
            table.add_row(
                operation,
                name,
                f"{row['milliseconds']:.2f}",
                f"{row['slowest_milliseconds']:.1f}",
                f"{row['processor_milliseconds']:.2f}",
                f"{row['million_rows_per_second']:.1f}",
                *ratios,
            )
        table.add_section()
    Console().print(table)


def parse_arguments() -> argparse.Namespace:
    """Returns the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables.lookup", description=__doc__)
    for name, default in (("rows", 4_000_000), ("rounds", 10), ("calls", 10), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--operations", nargs="+", choices=SIDES_OF, default=list(SIDES_OF))
    parser.add_argument("--name", default="lookup", help="name of the result file")
    arguments = parser.parse_args()
    workload.check_rows(parser, arguments.rows)
    return arguments


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/lookup.json`."""
    arguments = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    load = round(os.getloadavg()[0], 2)
    if load > BUSY:
        LOGGER.warning("The machine is at work (load %.1f): sides may not get their threads.", load)
    with contextlib.ExitStack() as stack:
        sides = start_sides(arguments.sides, arguments.rows, arguments.threads)
        for side in sides:
            stack.callback(side.close)
        summary = {
            operation: compare(take_turns(sides, operation, arguments.rounds, arguments.calls))
            for operation in arguments.operations
        }
    show(summary, arguments.rows)
    setting = {name: value for name, value in vars(arguments).items() if name != "name"}
    facts = {side.name: side.facts for side in sides}
    result = {"setting": setting, "load_before": load, "sides": facts, "summary": summary}
    LOGGER.info("%s", launch.write_result(arguments.name, result).relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
