"""Samples per second of every reader, beside what a user of tf.data would write.

    python -m benchmarks.stream.readers [--copies 50] [--rounds 3]
    python -m benchmarks.stream.readers --checks     # the share of the check of values alone

One process that may use all cores; no model: the datasets are gone through, first to last batch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.stream.readers import files
from benchmarks.stream.readers.checking import decoding, reading, share_of_check
from benchmarks.stream.readers.sides import BATCH, FORMATS, SIDES
from benchmarks.support import launch


def samples_per_second(side: str, path: Path) -> float:
    """Goes through a dataset once, after the first batch of it was made once."""
    _, make = SIDES[side]
    for _ in make(path).take(1):
        pass
    samples = 0
    started = time.perf_counter()
    for batch in make(path):
        features = batch[0] if isinstance(batch, tuple) else batch
        samples += int(features["C1"].shape[0])
    return samples / (time.perf_counter() - started)


def checks(paths: dict[str, Path], rounds: int) -> dict[str, float]:
    """Returns the share of the check of values in the processor time of each reader; prints it."""
    shares = {
        side: share_of_check(reading(format_, paths[SIDES[side][0]], BATCH), rounds)
        for side, format_ in track(FORMATS.items(), "Checking", transient=True)
    }
    for side, (record, columns) in files.records(paths["parquet"]).items():
        shares[side] = share_of_check(decoding(record, columns), rounds)
    table = Table("reader", "check of values, % of its processor time")
    for side, share in shares.items():
        table.add_row(side, f"{100 * share:.2f}")
    Console().print(table)
    return shares


def main() -> None:
    """Runs the sides in turn, prints the medians and keeps all numbers."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stream.readers", description=__doc__
    )
    parser.add_argument("--copies", type=int, default=50, help="of 8,000 samples")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checks", action="store_true", help="only the share of the checks")
    arguments = parser.parse_args()
    speeds: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="tfhybrid-readers-") as folder:
        paths = files.write(Path(folder), arguments.copies)
        if arguments.checks:
            shares = checks(paths, arguments.rounds)
            launch.write_result("checks", {"copies": arguments.copies, "shares": shares})
            return
        sizes = {name: path.stat().st_size for name, path in paths.items()}
        turns = [side for _ in range(arguments.rounds) for side in SIDES]
        for side in track(turns, "Reading", transient=True):
            speeds[side].append(samples_per_second(side, paths[SIDES[side][0]]))
    table = Table("reader", "bytes a sample", "samples/s", "MB/s")
    for side, found in speeds.items():
        bytes_each = sizes[SIDES[side][0]] / (8000 * arguments.copies)
        speed = statistics.median(found)
        table.add_row(side, f"{bytes_each:.0f}", f"{speed:,.0f}", f"{speed * bytes_each / 1e6:.0f}")
    Console().print(table)
    launch.write_result("readers", {"copies": arguments.copies, "speeds": speeds, "bytes": sizes})


if __name__ == "__main__":
    main()
