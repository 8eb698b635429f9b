"""Test AUC on Frappe_x1 of what changes a training on several hosts.

    python -m benchmarks.quality.hosts_auc [--seeds 3] [--ways default bfloat16 ...]

By default, gradients between hosts in float32 and in bfloat16, and `update="pass"` with passes
of 4 and of 16 batches. Two hosts of one rank, the same seeds for all; needs root.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.hosts.hosts.run import UNLIMITED, run_on_hosts
from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.hosts.hosts")
# Options of examples/frappe.py.
WAYS: dict[str, list[str]] = {
    "default": [],
    "bfloat16": ["--wire-dtype=bfloat16"],
    "passes of 4": ["--pass-batches=4"],
    "passes of 16": ["--pass-batches=16"],
}


def run(seed: int, way: str) -> dict[str, object]:
    """Trains once; returns what `examples/frappe.py` wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch, "outcome.json")
        command = ["examples/frappe.py", f"--seed={seed}", *WAYS[way]]
        run_on_hosts([*command, f"--output={output}"], hosts=2, ranks=1, rate=UNLIMITED)
        return {"way": way, **json.loads(output.read_text())}


def main() -> None:
    """Runs all with every seed, prints, and writes `benchmarks/results/hosts_auc.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... of each")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    runs = []
    for seed in seeds:
        for way in arguments.ways:
            runs.append(run(seed, way))
            LOGGER.info("seed %d, %s: test AUC %.4f", seed, way, runs[-1]["auc"])
    table = Table(title="Frappe_x1, DeepFM, 2 hosts x 1 rank: test AUC")
    for column in ("", *(f"seed {seed}" for seed in seeds), "mean"):
        table.add_column(column, justify="right")
    for way in arguments.ways:
        aucs = [one["auc"] for one in runs if one["way"] == way]
        table.add_row(way, *(f"{auc:.4f}" for auc in aucs), f"{statistics.mean(aucs):.4f}")
    Console().print(table)
    path = launch.write_result("hosts_auc", {"runs": runs})
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
