"""Test AUC on Frappe_x1 with gradients between hosts in float32 and in bfloat16.

    python -m benchmarks.hosts.auc [--seeds 3]

Two hosts of one rank, the same seeds for both; needs root.
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

from benchmarks import launch
from benchmarks.hosts.run import UNLIMITED, run_on_hosts

LOGGER = logging.getLogger("benchmarks.hosts")
WIRE_DTYPES = ("float32", "bfloat16")


def run(seed: int, wire_dtype: str) -> dict[str, object]:
    """Trains once; returns what `examples/frappe.py` wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch, "outcome.json")
        command = ["examples/frappe.py", f"--seed={seed}", f"--wire-dtype={wire_dtype}"]
        run_on_hosts([*command, f"--output={output}"], hosts=2, ranks=1, rate=UNLIMITED)
        return json.loads(output.read_text())


def main() -> None:
    """Runs both with every seed, prints, and writes `benchmarks/results/hosts_auc.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... of each")
    seeds = range(parser.parse_args().seeds)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    runs = []
    for seed in seeds:
        for wire_dtype in WIRE_DTYPES:
            runs.append(run(seed, wire_dtype))
            LOGGER.info("seed %d, %s: test AUC %.4f", seed, wire_dtype, runs[-1]["auc"])
    table = Table(title="Frappe_x1, DeepFM, 2 hosts x 1 rank: test AUC")
    for column in ("on the wire", *(f"seed {seed}" for seed in seeds), "mean"):
        table.add_column(column, justify="right")
    for wire_dtype in WIRE_DTYPES:
        aucs = [one["auc"] for one in runs if one["wire_dtype"] == wire_dtype]
        table.add_row(wire_dtype, *(f"{auc:.4f}" for auc in aucs), f"{statistics.mean(aucs):.4f}")
    Console().print(table)
    path = launch.write_result("hosts_auc", {"runs": runs})
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
