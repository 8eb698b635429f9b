"""Samples a second of a table four times as large as the memory it may use: files, memory, RocksDB.

python -m benchmarks.storage.disk [--rows 4000000] [--path /nvme] [--cgroup /sys/fs/cgroup/disk]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.storage.disk.batches import add_options, record_bytes
from benchmarks.support import launch
from tfhybrid.cli.doctor import disk_speed

LOGGER = logging.getLogger("benchmarks.storage.disk")
PEER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tfhybrid/peers/rocksdict"
# What a side needs beside its rows: the interpreter, index and keys, batches.
BESIDE_BYTES = 512 * 2**20
# As many records as a lookup has on their way.
THREADS = (1, 16, 64)


def limited(cgroup: Path | None, most: int) -> None:
    """In the child: joins a group whose memory, page cache included, is limited."""
    if cgroup is not None:
        limit = cgroup / "memory.max"  # of version 2
        (limit if limit.exists() else cgroup / "memory.limit_in_bytes").write_text(str(most))
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))


def run(
    module: str, options: list[str], python: Path, cgroup: Path | None, most: int
) -> dict[str, float]:
    """Runs a side and returns what it printed."""
    side = subprocess.run(
        [str(python), "-m", f"benchmarks.storage.disk.{module}", *options],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=launch.ROOT,
        preexec_fn=lambda: limited(cgroup, most),
    )
    return json.loads(side.stdout.splitlines()[-1])


def measure(arguments: argparse.Namespace, ids: str) -> dict[str, dict[str, float]]:
    """Returns the figures of each side with keys of one distribution."""
    names = ("rows", "dim", "keys", "steps", "warm", "share", "path")
    options = [text for name in names for text in (f"--{name}", str(getattr(arguments, name)))]
    options += ["--ids", ids]
    whole = arguments.rows * record_bytes(arguments.dim)
    most = int(arguments.share * whole) + BESIDE_BYTES
    own = Path(sys.executable)
    sides = {
        "memory": run("train", [*options, "--storage", "memory"], own, None, 0),
        "files": run("train", [*options, "--storage", "files"], own, arguments.cgroup, most),
    }
    peer = PEER / "bin/python"
    if peer.exists():
        sides["rocksdb"] = run("rocks", options, peer, arguments.cgroup, most)
    else:
        LOGGER.info("without RocksDB: benchmarks/support/peers/install_rocksdict was not run")
    for side in sides.values():
        side["samples_per_second"] = arguments.keys * arguments.steps / side["seconds"]
    return sides


def show(sides: dict[str, dict[str, float]], reads: float, ids: str) -> None:
    """Prints samples a second, as shares of memory and of what the disk's reads allow."""
    table = Table(title=f"{ids} keys")
    for heading in (
        "side",
        "samples/s",
        "of memory",
        "of the disk's limit",
        "pages read for a miss",
    ):
        table.add_column(heading, justify="right")
    in_memory = sides["memory"]["samples_per_second"]
    for name, side in sides.items():
        limit, pages = "", ""
        if name == "files" and side["misses"]:
            limit = f"{side['misses'] / reads / side['seconds']:.2f}"
            pages = f"{side['read_bytes'] / 4096 / side['misses']:.2f}"
        rate = side["samples_per_second"]
        table.add_row(name, f"{rate:,.0f}", f"{rate / in_memory:.2f}", limit, pages)
    Console().print(table)


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/disk.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage.disk", description=__doc__)
    add_options(parser)
    parser.add_argument(
        "--cgroup", type=Path, help="a group of this user's, with the controller of memory"
    )
    parser.add_argument("--name", default="disk", help="name of the result file")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    reads = {
        threads: disk_speed.measure(str(arguments.path), 1 << 30, 2.0, threads).reads
        for threads in THREADS
    }
    for threads, rate in reads.items():
        LOGGER.info("%s thread(s): %s reads of 4 KiB a second", threads, f"{rate:,.0f}")
    results = {ids: measure(arguments, ids) for ids in ("zipf", "uniform")}
    for ids, sides in results.items():
        show(sides, max(reads.values()), ids)
    setting = {
        name: getattr(arguments, name) for name in ("rows", "dim", "keys", "steps", "warm", "share")
    }
    setting["cgroup"] = arguments.cgroup is not None
    result = {"setting": setting, "reads_per_second": reads, "sides": results}
    LOGGER.info("%s", launch.write_result(arguments.name, result).relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
