"""Sharded and replicated tables, with and without passes, on 2 to 4 hosts beside TFRA's all-to-all.

    python -m benchmarks.hosts.sharding [--hosts 2 3 4] [--rounds 3]

Each number of hosts is a run of `benchmarks.hosts.hosts` with one rank a host. Needs root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.support import launch

SIDES = ("bound", "tfra", "tfhybrid", "tfhybrid-sharded", "tfhybrid-pass")


def run(hosts: int, rounds: int, ids: str) -> dict[str, object]:
    """Runs all sides on so many hosts, and returns the result without its single runs.

    Raises:
        CalledProcessError: A side failed.
    """
    name = f"sharding_{hosts}"
    command = [sys.executable, "-m", "benchmarks.hosts.hosts", f"--hosts={hosts}", "--ranks=1"]
    command += ["--rounds", str(rounds), "--name", name, "--ids", ids, "--sides", *SIDES]
    subprocess.run(command, cwd=launch.ROOT, check=True)
    path = launch.RESULTS / f"{name}.json"
    result = json.loads(path.read_text())
    path.unlink()
    return {key: result[key] for key in ("setting", "formula", "summary")}


def main() -> None:
    """Runs each number of hosts, and writes `benchmarks/results/sharding.json`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hosts.sharding", description=__doc__
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ids", default="zipf", help="see benchmarks/step/step")
    arguments = parser.parse_args()
    found = {
        hosts: run(hosts, arguments.rounds, arguments.ids) for hosts in sorted(arguments.hosts)
    }
    launch.write_result("sharding", {"ids": arguments.ids, "by_hosts": found})


if __name__ == "__main__":
    main()
