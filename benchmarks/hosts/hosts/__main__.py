"""Samples per second of a step on several hosts with a limited link, and bytes that cross it.

    python -m benchmarks.hosts.hosts [--hosts 2] [--ranks 2] [--rate 1gbit] [--ids uniform]

The step and the sides are those of `step`. The hosts are network namespaces, made anew
for every turn of a side: nothing that one leaves behind meets the next. Needs root.
"""

from __future__ import annotations

import argparse
import logging
import shlex

from rich.console import Console
from rich.table import Table

from benchmarks.hosts.hosts.formula import bytes_per_step
from benchmarks.hosts.hosts.run import UNLIMITED, run_on_hosts
from benchmarks.step.step import sides
from benchmarks.step.step.workload import StepConfig, add_options, config_in
from benchmarks.support import launch
from tests.support import hosts as several

LOGGER = logging.getLogger("benchmarks.hosts.hosts")
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


def summarize(results: sides.Runs, formula: dict[str, float]) -> sides.Summary:
    """Returns the step's summary of each side, and the MB per step that left a host.

    Args:
        results: Of all sides.
        formula: Of `formula.py`; its bytes and those of the bound, which sends dense
            gradients alone, are what a side of tfhybrid should send.
    """
    summary = sides.summarize(results)
    sent = {name: sides.median("sent_bytes_per_step", runs) for name, runs in results.items()}
    for name, row in summary.items():
        row["sent_megabytes_per_step"] = round(sent[name] / 1e6, 2)
        kind = {"tfhybrid": "replicated", "tfhybrid-sharded": "sharded"}.get(name)
        if kind is not None and "bound" in sent:
            wanted = formula[kind] + sent["bound"]
            row["formula_megabytes_per_step"] = round(wanted / 1e6, 2)
        if name == "tfhybrid-pass":
            row["hidden_share_of_fetching"] = hidden_share(results[name])
    return summary


def hidden_share(runs: list[dict[str, object]]) -> float | None:
    """Returns the share of the time in which rows were on their way that no lookup waited for."""
    on_its_way = sides.median("pass_on_its_way_milliseconds", runs)
    waited = sides.median("fetch_wait_milliseconds", runs)
    return round(max(0.0, 1.0 - waited / on_its_way), 3) if on_its_way else None


def show(summary: sides.Summary, title: str) -> None:
    """Prints the comparison as a table."""
    table = Table(title=title)
    for heading in (
        "side",
        "samples/s",
        "ms/step",
        "CPU ms/step",
        "MB/step out of a host",
        "by formula",
        "fetching hidden",
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
            sides.ratio(row.get("formula_megabytes_per_step")),
            sides.ratio(row.get("hidden_share_of_fetching")),
            sides.ratio(row["to_bound"]),
            sides.ratio(row["to_better_peer"]),
        )
    Console().print(table)


def parse() -> tuple[argparse.Namespace, list[str]]:
    """Returns the parsed options, and the rest, which go to every side."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hosts.hosts",
        description=__doc__,
        epilog="Other options go to every side: see benchmarks/step/step/model.py.",
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
        parser.error("one host sends nothing over its link: see scripts/bench step")
    if reason := several.missing():
        parser.error(f"there can be no hosts here: {reason}")
    return arguments, options


def workload_of(options: list[str]) -> StepConfig:
    """Returns the workload that the options of every side ask for."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    return config_in(parser.parse_known_args(options)[0])


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/hosts.json`."""
    arguments, options = parse()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = sides.run_rounds(
        arguments.sides, arguments.rounds, lambda name: run_side(name, arguments, options)
    )
    formula = bytes_per_step(workload_of(options), arguments.hosts, arguments.ranks)
    LOGGER.info(
        "by formula, bytes per merged key: %.0f replicated, %.0f sharded",
        formula["replicated_per_key"],
        formula["sharded_per_key"],
    )
    summary = summarize(results, formula)
    show(
        summary,
        f"{arguments.hosts} hosts x {arguments.ranks} ranks, link {arguments.rate}, "
        f"{arguments.rounds} rounds {' '.join(options)}",
    )
    setting = {key: vars(arguments)[key] for key in ("hosts", "ranks", "rate", "rounds")}
    setting |= {"options": options, "tfhybrid_options": arguments.tfhybrid_options}
    path = launch.write_result(
        arguments.name,
        {"setting": setting, "formula": formula, "summary": summary, "runs": results},
    )
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
