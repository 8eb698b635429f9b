"""Samples per second of a step on several hosts with a limited link, and bytes that cross it.

    python -m benchmarks.hosts [--hosts 2] [--ranks 2] [--rate 1gbit] [--ids uniform]

The step and the sides are those of `benchmarks.step`. The hosts are network namespaces, made anew
for every turn of a side: nothing that one leaves behind meets the next. Needs root.
"""

from __future__ import annotations

import argparse
import logging
import shlex

from rich.console import Console
from rich.table import Table

from benchmarks import launch
from benchmarks.hosts.run import UNLIMITED, run_on_hosts
from benchmarks.step import sides
from tests.integration import hosts as several

LOGGER = logging.getLogger("benchmarks.hosts")
DEFAULT_SIDES = ["bound", "plain", "tfra", "tfhybrid", "tfhybrid-bfloat16"]


def options_of(name: str, arguments: argparse.Namespace, options: list[str]) -> list[str]:
    """Returns a side's command line: its own options, those of all, those of tfhybrid."""
    extra = arguments.tfhybrid_options if name.startswith("tfhybrid") else ""
    return [*sides.SIDES[name].options, *options, *shlex.split(extra)]


def run_side(name: str, arguments: argparse.Namespace, options: list[str]) -> dict[str, object]:
    """Runs a side once on hosts of its own, and returns its result.

    Raises:
        SideFailedError: The side failed.
    """
    side = sides.SIDES[name]
    command = ["-m", side.module, *options_of(name, arguments, options)]
    where = arguments.hosts, arguments.ranks, arguments.rate
    return launch.result_in(run_on_hosts(command, *where, side.python()))


def summarize(results: sides.Runs) -> sides.Summary:
    """Returns the step's summary of each side, and the MB per step that left a host."""
    summary = sides.summarize(results)
    for name, row in summary.items():
        sent = sides.median("sent_bytes_per_step", results[name])
        row["sent_megabytes_per_step"] = round(sent / 1e6, 2)
    return summary


def show(summary: sides.Summary, title: str) -> None:
    """Prints the comparison as a table."""
    table = Table(title=title)
    for heading in (
        "side",
        "samples/s",
        "ms/step",
        "CPU ms/step",
        "MB/step out of a host",
        "of the bound",
        "to better peer",
    ):
        table.add_column(heading, justify="left" if heading == "side" else "right")
    for name, row in summary.items():
        table.add_row(
            name,
            f"{row['samples_per_second']:,}",
            f"{row['milliseconds_per_step']:.1f}",
            f"{row['processor_milliseconds_per_step']:.0f}",
            f"{row['sent_megabytes_per_step']:.2f}",
            sides.ratio(row["to_bound"]),
            sides.ratio(row["to_better_peer"]),
        )
    Console().print(table)


def parse() -> tuple[argparse.Namespace, list[str]]:
    """Returns the parsed options, and the rest, which go to every side."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hosts",
        description=__doc__,
        epilog="Other options go to every side: see benchmarks/step/model.py.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--hosts", type=int, default=2, help="at least 2")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of each host")
    parser.add_argument("--rate", default="1gbit", help=f"of each host's link; or {UNLIMITED}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=sides.SIDES, default=DEFAULT_SIDES)
    parser.add_argument(
        "--tfhybrid-options", default="", help='go to tfhybrid alone: --tfhybrid-options="--a b"'
    )
    parser.add_argument("--name", default="hosts", help="name of the result file")
    arguments, options = parser.parse_known_args()
    if arguments.hosts < 2:
        parser.error("one host sends nothing over its link: see benchmarks.step")
    if reason := several.missing():
        parser.error(f"there can be no hosts here: {reason}")
    return arguments, options


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/hosts.json`."""
    arguments, options = parse()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = sides.run_rounds(
        arguments.sides, arguments.rounds, lambda name: run_side(name, arguments, options)
    )
    summary = summarize(results)
    show(
        summary,
        f"{arguments.hosts} hosts x {arguments.ranks} ranks, link {arguments.rate}, "
        f"{arguments.rounds} rounds {' '.join(options)}",
    )
    setting = {key: vars(arguments)[key] for key in ("hosts", "ranks", "rate", "rounds")}
    setting |= {"options": options, "tfhybrid_options": arguments.tfhybrid_options}
    path = launch.write_result(
        arguments.name, {"setting": setting, "summary": summary, "runs": results}
    )
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
