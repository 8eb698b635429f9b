"""Resuming after a crash: from memory against a checkpoint of 2 GB, and what each step costs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.support.launch import ROOT, write_result


def run(directory: Path, rows: int, resume: str, shm_directory: Path) -> dict[str, float]:
    """One run of the job, which ends by SIGKILL."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.storage.restart.run", str(directory), str(rows), resume],
        cwd=ROOT,
        env=os.environ
        | {
            "TFHYBRID_SHM_DIR": str(shm_directory),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TFHYBRID_LOG_LEVEL": "ERROR",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.startswith("{"):
        raise RuntimeError(done.stdout + done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=15_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the checkpoint is written")
    arguments = parser.parse_args()
    sides: dict[str, list[dict[str, float]]] = {"memory": [], "checkpoint": []}
    with (
        tempfile.TemporaryDirectory(dir=arguments.directory) as directory,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-bench-") as shm_directory,
    ):
        folders = Path(directory), Path(shm_directory)

        def go_on(resume: str) -> dict[str, float]:
            return run(folders[0], arguments.rows, resume, folders[1])

        go_on("memory")  # makes the rows and the checkpoint
        for _ in range(arguments.rounds):
            for store in folders[1].glob("tfhybrid-*-restart-benchmark"):
                shutil.rmtree(store)
            sides["checkpoint"].append(go_on("checkpoint"))
            go_on("memory")
            sides["memory"].append(go_on("memory"))
    console = Console()
    size = sides["memory"][0]["bytes"] / 1e9
    table = Table("", *sides, title=f"{size:.1f} GB, median of {arguments.rounds}")
    for what in ("seconds_of_init", "seconds_of_restore", "seconds", "step_ms"):
        medians = [np.median([each[what] for each in rounds]) for rounds in sides.values()]
        table.add_row(what.replace("_", " "), *(f"{median:.3f}" for median in medians))
    console.print(table)
    console.print(write_result("restart", {"rows": arguments.rows, **sides}))


if __name__ == "__main__":
    main()
