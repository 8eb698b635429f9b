"""Trainers with data nodes and embedding nodes: bytes received, waits, samples per second.

    python -m benchmarks.roles.roles [--part links rates] [--rate 1gbit] [--rounds 3]

links: six hosts with limited links: two trainers, a source of samples, a data node, two embedding
nodes. A run without nodes has the same trainers and source, and sharded tables. Needs root.
rates: processes of this machine, beside TensorFlow's ParameterServerStrategy; samples are drawn
before. Each side runs in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.roles.roles.site import nodes, site, source_of
from benchmarks.roles.roles.workload import Workload
from benchmarks.step.step.sides import run_rounds
from benchmarks.support import launch
from tests.support import hosts as several

LOGGER = logging.getLogger("benchmarks.roles.roles")
PARAMETER_SERVER = "benchmarks.stream.stream.parameter_server"
WORKLOADS = {
    "ads": Workload(shape="ads", features=300, rows=100_000, batch=512, windows=3, steps=8),
    "step": Workload(),
}
IDS = ("zipf", "uniform")
STALENESS = {"roles, 4 stale": 4}  # sides whose rows may lack that many updates
Run = dict[str, Any]


def linked_run(workload: Workload, with_nodes: bool, arguments: argparse.Namespace) -> Run:
    """Runs the trainers on hosts, and returns their result with bytes by kind."""
    with site(arguments.rate) as place, source_of(place, workload) as address:
        told = [
            "--workload",
            _json(workload),
            "--source",
            address,
            "--delivery",
            arguments.delivery,
        ]
        if with_nodes:
            with nodes(place):
                run = place.train(told)
        else:
            run = place.train([*told, "--sharded"])
        return run | {"received": bytes_by_kind(run, workload, place.role_of_address())}


def rate_run(workload: Workload, side: str, arguments: argparse.Namespace) -> Run:
    """Runs a side on this machine.

    Raises:
        SideFailedError: It failed.
    """
    if side == "parameter servers":
        return parameter_servers(workload)
    told = ["--workload", _json(workload), "--delivery", arguments.delivery]
    with site("") as place:
        if side == "colocated":
            return place.train(told)
        with nodes(place):
            return place.train([*told, "--staleness", str(STALENESS.get(side, 0))])


def parameter_servers(workload: Workload) -> Run:
    """Runs TensorFlow's parameter servers on the same shape.

    Raises:
        SideFailedError: They failed.
    """
    names = ("features", "dim", "rows", "batch", "ids", "windows", "steps")
    told = [f"--{name}={getattr(workload, name)}" for name in names]
    return launch.run_alone(PARAMETER_SERVER, told)


def bytes_by_kind(
    run: Run, workload: Workload, role_of_address: dict[str, str]
) -> dict[str, float]:
    """Returns the bytes that a trainer received per sample.

    Samples come from the source or a data node: what of them is neither dense features nor labels
    is ids, or places, with their envelope. `rows` is what lookups fetched, and `other` the rest:
    updates, dense gradients, answers.
    """
    per_step = run["per_step"]
    of_role: dict[str, float] = dict.fromkeys(("trainer", "source", "data", "owner"), 0.0)
    for address, role in role_of_address.items():
        of_role[role] += per_step.get(f"from {address}", 0.0)
    samples = of_role["source"] + of_role["data"]
    dense, labels = 4.0 * workload.dense, 4.0
    rows = per_step["fetched_bytes"] / workload.batch
    every = sum(of_role.values()) / workload.batch
    return {
        "ids or places": samples / workload.batch - dense - labels,
        "dense": dense,
        "labels": labels,
        "rows": rows,
        "other": every - samples / workload.batch - rows,
        "all": every,
    }


def _median(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    return statistics.median(map(value, runs))


def summary_of_links(runs: dict[str, list[Run]]) -> dict[str, Run]:
    """Returns bytes per sample, and which share of a step a trainer waits for input and rows."""

    def share(name: str) -> Callable[[Run], float]:
        return lambda run: 1e3 * run["per_step"][name] / run["milliseconds_per_step"]

    return {
        side: {
            "samples_per_second": round(_median(of_side, lambda run: run["samples_per_second"])),
            "waits_for_input": round(_median(of_side, share("input_seconds")), 3),
            "waits_for_rows": round(_median(of_side, share("rows_seconds")), 3),
            "received_bytes_per_sample": {
                kind: round(_median(of_side, lambda run, kind=kind: run["received"][kind]), 1)
                for kind in of_side[0]["received"]
            },
        }
        for side, of_side in runs.items()
    }


def summary_of_rates(runs: dict[str, list[Run]]) -> dict[str, Run]:
    """Returns samples per second, and their ratio to those of the other sides."""
    rates = {
        side: _median(of_side, lambda run: run["samples_per_second"])
        for side, of_side in runs.items()
    }
    return {
        side: {"samples_per_second": round(rate)}
        | {f"to {other}": round(rate / rates[other], 3) for other in rates if other != side}
        for side, rate in rates.items()
    }


def show(title: str, summary: dict[str, Run]) -> None:
    """Prints a table with a column for each side."""
    flat = {
        side: {**row, **row.get("received_bytes_per_sample", {})} for side, row in summary.items()
    }
    headings = dict.fromkeys(name for row in flat.values() for name in row)
    headings.pop("received_bytes_per_sample", None)
    table = Table("", title=title)
    for side in flat:
        table.add_column(side, justify="right")
    for heading in headings:
        values = [row.get(heading) for row in flat.values()]
        shown = ["-" if value is None else f"{value:,}" for value in values]
        table.add_row(heading.replace("_", " "), *shown)
    Console().print(table)


def _json(workload: Workload) -> str:
    return json.dumps(dataclasses.asdict(workload))


def measure_links(arguments: argparse.Namespace, changes: dict[str, Any]) -> dict[str, Any]:
    """Measures both shapes on hosts."""
    found: dict[str, Any] = {}
    for shape in arguments.shapes:
        workload = dataclasses.replace(WORKLOADS[shape], **changes)
        runs = run_rounds(
            ["colocated", "roles"],
            arguments.rounds,
            lambda side, workload=workload: linked_run(workload, side == "roles", arguments),
        )
        summary = summary_of_links(runs)
        show(f"{shape}, link {arguments.rate}, bytes per sample into a trainer", summary)
        found[shape] = {"summary": summary, "runs": runs}
    return found


def measure_rates(arguments: argparse.Namespace, changes: dict[str, Any]) -> dict[str, Any]:
    """Measures the step shape on this machine, as `benchmarks.step.step` has it."""
    found: dict[str, Any] = {}
    for ids in IDS:
        workload = dataclasses.replace(Workload(dense=0), **{**changes, "ids": ids})
        runs = run_rounds(
            ["parameter servers", "colocated", "roles", *STALENESS],
            arguments.rounds,
            lambda side, workload=workload: rate_run(workload, side, arguments),
        )
        summary = summary_of_rates(runs)
        show(f"{ids} ids, one machine", summary)
        found[ids] = {"summary": summary, "runs": runs}
    return found


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/roles.json`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.roles.roles",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = {"links": measure_links, "rates": measure_rates}
    parser.add_argument("--part", nargs="+", choices=parts, default=[*parts])
    parser.add_argument("--shapes", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument("--rate", default="1gbit", help="of each host's link, as tc has it")
    parser.add_argument("--delivery", default="push", help="who speaks first of a batch's rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="roles", help="name of the result file")
    for name in ("features", "rows", "batch", "windows", "steps"):
        parser.add_argument(f"--{name}", type=int, help="in place of the shape's own")
    arguments = parser.parse_args()
    if "links" in arguments.part and (reason := several.missing()):
        parser.error(f"there can be no hosts here: {reason}")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    names = ("features", "rows", "batch", "windows", "steps")
    changes = {name: getattr(arguments, name) for name in names}
    changes = {name: value for name, value in changes.items() if value is not None}
    found = {part: parts[part](arguments, changes) for part in arguments.part}
    path = launch.write_result(arguments.name, {"setting": vars(arguments), **found})
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
