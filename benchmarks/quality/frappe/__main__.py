"""Frappe_x1 with DeepFM on 1, 2 and 4 ranks with the same global batches: one table of test AUC.

    python -m benchmarks.quality.frappe [--ranks 1 2 4] [--seeds 3]

Each run is a job of its own: `horovodrun -np N python examples/frappe.py --seed S`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "frappe.json"
PUBLISHED_AUC = 0.9842


def main() -> None:
    """Runs every number of ranks with every seed, prints the table and keeps the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... of each")
    arguments = parser.parse_args()

    console = Console()
    runs = []
    for seed in range(arguments.seeds):
        for ranks in arguments.ranks:
            runs.append(run(ranks, seed))
            console.print(f"ranks {ranks}, seed {seed}: test AUC {runs[-1]['auc']:.4f}")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    host = {"machine": platform.machine(), "cpus": os.cpu_count()}
    RESULTS.write_text(json.dumps({"host": host, "runs": runs}, indent=2) + "\n")
    console.print(table_of(runs))
    console.print(f"written to {RESULTS.relative_to(ROOT)}")


def run(ranks: int, seed: int) -> dict[str, Any]:
    """Trains once and returns what `examples/frappe.py` wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch, "outcome.json")
        horovodrun = Path(sys.executable).with_name("horovodrun")
        script = [sys.executable, ROOT / "examples" / "frappe.py"]
        command = [horovodrun, "-np", ranks, *script, "--seed", seed, "--output", output]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{ranks} ranks, seed {seed} failed:\n{done.stdout}\n{done.stderr}")
        return json.loads(output.read_text())


def table_of(runs: list[dict[str, Any]]) -> Table:
    """Builds a row per number of ranks: the AUC of each seed, their mean, and the difference."""
    seeds = sorted({run["seed"] for run in runs})
    table = Table(title=f"Frappe_x1, DeepFM: test AUC (published: {PUBLISHED_AUC})")
    for column in ("ranks", *(f"seed {seed}" for seed in seeds), "mean", "against first row"):
        table.add_column(column, justify="right")
    table.add_column("log loss", justify="right")
    table.add_column("samples/s", justify="right")
    first = None
    for ranks in dict.fromkeys(run["ranks"] for run in runs):
        same = sorted((run for run in runs if run["ranks"] == ranks), key=lambda run: run["seed"])
        mean = statistics.mean(run["auc"] for run in same)
        first = mean if first is None else first
        table.add_row(
            str(ranks),
            *(f"{run['auc']:.4f}" for run in same),
            f"{mean:.4f}",
            f"{mean - first:+.4f}",
            f"{statistics.mean(run['log_loss'] for run in same):.4f}",
            f"{statistics.median(run['samples_per_second'] for run in same):,.0f}",
        )
    return table


if __name__ == "__main__":
    main()
