"""Samples a second of a table in files on two hosts, its keys announced or not, against memory.

python -m benchmarks.storage.announced [--rows 4000000] [--path /nvme] [--cgroup GROUP]
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.storage.announced.hosts import HOSTS, add_side_options
from benchmarks.storage.disk.__main__ import BESIDE_BYTES, limited
from benchmarks.storage.disk.batches import record_bytes
from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.storage.announced")
SIDES = {
    "memory": {"storage": "memory", "batches": 0},
    "files": {"storage": "files", "batches": 0},
    "announced": {"storage": "files", "batches": 4},
}
Figures = dict[str, float]


def run(options: argparse.Namespace, ids: str, side: str) -> tuple[Figures, list[int]]:
    """Returns a side's seconds a step, those of its slower host, its reads, and its digests."""
    values = {**vars(options), "ids": ids, **SIDES[side]}
    names = ("rows", "dim", "keys", "steps", "warm", "share", "path", "dense", "ids", "storage")
    arguments = [text for name in (*names, "batches") for text in (f"--{name}", str(values[name]))]
    whole = options.rows * record_bytes(options.dim)
    most = int(options.share * whole) + HOSTS * BESIDE_BYTES
    cgroup = options.cgroup if values["storage"] == "files" else None
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.storage.announced.hosts", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=launch.ROOT,
        preexec_fn=lambda: limited(cgroup, most),
    )
    hosts = json.loads(done.stdout.splitlines()[-1])
    names = ("seconds", "lookup", "post", "dense")
    figures = {name: max(host[name] for host in hosts) / options.steps for name in names}
    figures["pages_read"] = sum(host["read_bytes"] for host in hosts) / 4096 / options.steps
    return figures, [host["digest"] for host in hosts]


def measure(options: argparse.Namespace, ids: str) -> dict[str, Figures]:
    """Returns the medians of each side over `--rounds`, by turns."""
    rounds = [{side: run(options, ids, side) for side in SIDES} for _ in range(options.rounds)]
    digests = {tuple(of_hosts) for one in rounds for _, of_hosts in one.values()}
    if len(digests) != 1:
        raise SystemExit(f"All sides must end with the same rows. Received: {sorted(digests)}")
    return {
        side: {
            name: statistics.median(one[side][0][name] for one in rounds)
            for name in rounds[0][side][0]
        }
        for side in SIDES
    }


def show(sides: dict[str, Figures], options: argparse.Namespace, ids: str) -> None:
    """Prints samples a second, what a step waits for, and the pages that it reads."""
    table = Table(title=f"{ids} keys, {1000 * options.dense:g} ms of other work a step")
    for heading in ("side", "samples/s", "of memory", "ms a step", "lookup", "post", "pages read"):
        table.add_column(heading, justify="right")
    for name, side in sides.items():
        table.add_row(
            name,
            f"{options.keys / side['seconds']:,.0f}",
            f"{sides['memory']['seconds'] / side['seconds']:.2f}",
            *(f"{1000 * side[part]:.1f}" for part in ("seconds", "lookup", "post")),
            f"{side['pages_read']:,.0f}",
        )
    Console().print(table)


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/announced.json`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.storage.announced", description=__doc__
    )
    add_side_options(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--cgroup", type=Path, help="a group of this user's, with the controller of memory"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = {ids: measure(options, ids) for ids in ("zipf", "uniform")}
    for ids, sides in results.items():
        show(sides, options, ids)
    names = ("rows", "dim", "keys", "steps", "warm", "share", "dense", "rounds")
    setting = {name: getattr(options, name) for name in names}
    setting["cgroup"] = options.cgroup is not None
    path = launch.write_result("announced", {"setting": setting, "sides": results})
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
