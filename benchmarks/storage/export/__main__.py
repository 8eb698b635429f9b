"""An exported model in stock TensorFlow: seconds to load, memory, latency of a request.

    python -m benchmarks.storage.export [--rows 10000000] [--rounds 3]

Served in an environment that has only TensorFlow (stock_environment.py), in a fresh process each
time.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.storage.export import stock_environment
from benchmarks.support import launch

LOGGER = logging.getLogger("benchmarks.storage.export")
LIMIT = 1.5
BUSY = 0.7  # load above which something else takes a processor
QUANTILES = ("p50", "p99", "max", "processor_p50")
VERSIONS = {"1": "initial values", "2": "zeros"}


def forget(folder: Path) -> None:
    """Lets the kernel drop the files from its cache: the load that follows reads the disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def serve(python: Path, folder: Path, options: list[str]) -> dict[str, object]:
    """Returns what a fresh process in stock TensorFlow measures.

    Raises:
        launch.SideFailedError: it ended with an error.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [python, "-m", "benchmarks.storage.export.serve", folder, *options],
        cwd=launch.ROOT,
        env=environment | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    results = [line for line in run.stdout.splitlines() if line.startswith('{"side"')]
    if run.returncode or not results:
        raise launch.SideFailedError(f"serving {folder} failed:\n{run.stderr[-3000:]}")
    return json.loads(results[-1])


def median(runs: list[dict[str, object]], *path: str) -> float:
    """Returns the median of a number over the runs."""
    values = []
    for run in runs:
        value = run
        for name in path:
            value = value[name]
        values.append(value)
    return round(statistics.median(values), 3)


def summarize(runs: list[dict[str, object]]) -> dict[str, object]:
    """Returns the medians of a version's runs; the first of them read the disk."""
    return {
        "seconds_to_load_from_disk": runs[0]["seconds_to_load"],
        "seconds_to_load": median(runs[1:] or runs, "seconds_to_load"),
        "growth_to_payload": median(runs, "growth_to_payload"),
        "peak_growth_to_payload": median(runs, "peak_growth_to_payload"),
        "milliseconds": {
            keys: {name: median(runs, "milliseconds", keys, name) for name in QUANTILES}
            for keys in runs[0]["milliseconds"]
        },
    }


def show(summary: dict[str, dict[str, object]]) -> None:
    """Prints the versions as a table."""
    table = Table("unseen keys", "keys", title="in stock TensorFlow", box=box.SIMPLE)
    for heading in ("load s", "disk s", "memory", "p50 ms", "p99", "max", "CPU p50"):
        table.add_column(heading, justify="right")
    for version, row in summary.items():
        for keys, milliseconds in row["milliseconds"].items():
            table.add_row(
                VERSIONS[version],
                keys.replace("_", " "),
                f"{row['seconds_to_load']:.2f}",
                f"{row['seconds_to_load_from_disk']:.2f}",
                f"{row['growth_to_payload']:.2f}",
                *(f"{milliseconds[name]:.1f}" for name in QUANTILES),
            )
    Console().print(table)


def main() -> None:
    """Parses the command line, runs, prints and writes `benchmarks/results/export.json`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.storage.export", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="export", help="name of the result file")
    # What this parser does not know goes to both sides: see benchmarks/storage/export/workload.py.
    arguments, options = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    load = round(os.getloadavg()[0], 2)
    if load > BUSY:
        LOGGER.warning("The machine is at work (load %.1f): latencies will be too long.", load)
    with tempfile.TemporaryDirectory(prefix="tfhybrid-export-") as directory:
        python = stock_environment.make(Path(directory) / "stock")
        written = launch.run_side("benchmarks.storage.export.write", [directory, *options], ranks=1)
        LOGGER.info("exported: %s", written)
        runs: dict[str, list[dict[str, object]]] = {version: [] for version in VERSIONS}
        forget(Path(directory))
        for number in range(arguments.rounds):
            for version, done in runs.items():
                done.append(serve(python, Path(directory) / version, options))
                LOGGER.info("round %d: %s", number + 1, done[-1])
    summary = {version: summarize(done) for version, done in runs.items()}
    show(summary)
    LOGGER.info("memory is that of keys and vectors, times this: the goal is %.1f at most", LIMIT)
    setting = {"rounds": arguments.rounds, "options": options}
    result = {
        "setting": setting,
        "load_before": load,
        "export": written,
        "summary": summary,
        "runs": runs,
    }
    path = launch.write_result(arguments.name, result)
    LOGGER.info("%s", path.relative_to(launch.ROOT))


if __name__ == "__main__":
    main()
