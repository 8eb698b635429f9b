"""A side of the benchmark `disk`: steps of one table, in memory or in files, by an engine alone."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.storage.disk.batches import RATE, add_options, batches, bytes_from_disk, gradients
from benchmarks.storage.disk.filled import NAME, fill
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import UpdateChoices


def opened(directory: str, options: argparse.Namespace) -> Engine:
    """Returns an engine whose table has all rows."""
    engine = Engine()
    engine.open_store(directory, "disk", 0, "rank 0", 7)
    fill(engine, options)
    return engine


def main() -> None:
    """Trains, and prints seconds and what the cache did in the steps that count."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    parser.add_argument("--storage", choices=["memory", "files"], required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        engine = opened(str(Path(directory)), options)
        try:
            result = measure(engine, options)
        finally:
            engine.close_store()
    sys.stdout.write(json.dumps({"side": options.storage, **result}) + "\n")


def measure(engine: Engine, options: argparse.Namespace) -> dict[str, float]:
    """Does all steps; returns the figures of the last `--steps`."""
    update = engine.open_update("adagrad", {NAME: options.dim}, UpdateChoices())
    seconds = 0.0
    before, read = engine.table_stats(NAME), bytes_from_disk()
    for step, keys in enumerate(batches(options)):
        if step == options.warm:
            before, read, seconds = engine.table_stats(NAME), bytes_from_disk(), 0.0
        of_keys = gradients(keys, options.dim)
        started = time.perf_counter()
        engine.lookup(NAME, options.dim, keys)
        update.post([keys], [of_keys], [float(RATE)], samples=len(keys))
        engine.wait(NAME)
        seconds += time.perf_counter() - started
    after = engine.table_stats(NAME)
    return {
        "seconds": seconds,
        "misses": after.cache_misses - before.cache_misses,
        "hits": after.cache_hits - before.cache_hits,
        "written": after.written_rows - before.written_rows,
        "read_bytes": bytes_from_disk() - read,
        "memory_bytes": after.bytes,
    }


if __name__ == "__main__":
    main()
