"""DIN against the same network without behaviours, on MovieLens in order of time: AUC and GAUC.

python -m benchmarks.quality.sequences [--ranks 2] [--seeds 3]
"""

from __future__ import annotations

import argparse
import statistics

from rich.console import Console
from rich.table import Table

from benchmarks.quality.sequences.train import SIDES
from benchmarks.support import launch

SCORES = ("auc", "gauc", "log_loss", "calibration", "samples_per_second")


def main() -> None:
    """Trains every side with every seed, prints the means and keeps the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... of each side")
    arguments = parser.parse_args()
    runs = []
    for seed in range(arguments.seeds):
        for side in SIDES:
            options = ["--side", side, "--seed", str(seed)]
            run = launch.run_side("benchmarks.quality.sequences.train", options, arguments.ranks)
            runs.append(run | {"seed": seed})
    table = Table(
        title=f"MovieLens in order of time, {arguments.ranks} ranks, {arguments.seeds} seeds"
    )
    for heading in ("model", *SCORES):
        table.add_column(heading, justify="right")
    for side in SIDES:
        same = [run for run in runs if run["side"] == side]
        means = [statistics.mean(run[score] for run in same) for score in SCORES]
        table.add_row(side, *(f"{mean:.4f}" for mean in means[:-1]), f"{means[-1]:,.0f}")
    Console().print(table)
    launch.write_result("sequences", {"ranks": arguments.ranks, "runs": runs})


if __name__ == "__main__":
    main()
