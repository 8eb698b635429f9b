"""A side of the benchmark `disk`: steps of one table, in memory or in files, by an engine alone."""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.storage.disk.batches import (
    INITIAL,
    RATE,
    add_options,
    batches,
    bytes_from_disk,
    gradients,
    record_bytes,
)
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerKind, TableStatsStruct
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.core.update import UpdateChoices
from tfhybrid.initializers import Uniform

NAME, SLOT_BYTES = "item", 16
BLOCK = 65_536


def stats(engine: Engine) -> TableStatsStruct:
    """Returns what the table says of itself."""
    struct = TableStatsStruct()
    engine.call("table_stats_get", NAME.encode(), ctypes.byref(struct))
    return struct


def opened(directory: str, options: argparse.Namespace) -> Engine:
    """Returns an engine whose table has all rows."""
    engine = Engine()
    engine.open_store(directory, "disk", 0, "rank 0", 7)
    files = ("", 0)
    if options.storage == "files":
        slots = int(options.share * options.rows)
        files = (options.path, slots * (record_bytes(options.dim) + SLOT_BYTES))
    engine.open_table(OpenedTable(NAME, options.dim, Uniform().native, files=files))
    engine.set_optimizer(
        NAME, kind=OptimizerKind.ADAGRAD, initial_accumulator_value=float(INITIAL), epsilon=1e-7
    )
    writer = TableWriter(engine, NAME, options.dim, (1, options.dim), None)
    for first in range(0, options.rows, BLOCK):
        keys = np.arange(first, min(first + BLOCK, options.rows))
        rows = np.full((len(keys), options.dim), 0.01, np.float32)
        writer.write_rows(RowBlock(keys, rows, None))
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
    before, read = stats(engine), bytes_from_disk()
    for step, keys in enumerate(batches(options)):
        if step == options.warm:
            before, read, seconds = stats(engine), bytes_from_disk(), 0.0
        of_keys = gradients(keys, options.dim)
        started = time.perf_counter()
        engine.lookup(NAME, options.dim, keys)
        update.post([keys], [of_keys], [float(RATE)], samples=len(keys))
        engine.wait(NAME)
        seconds += time.perf_counter() - started
    after = stats(engine)
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
