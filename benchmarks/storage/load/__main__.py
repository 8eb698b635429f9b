"""Loading a table: rows from arrays and from a file of records, without TensorFlow.

    python -m benchmarks.storage.load [--rows 4000000] [--dim 16] [--rounds 3]

Each round loads a fresh table of each kind. Memory is reserved before, and reported on its own: the
kernel clears its pages, on one thread. Reported per row: time, and processor time of all threads.
Bytes are those of key and embedding.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.support import launch
from tfhybrid import initializers
from tfhybrid.core.engine import Engine
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_writer import TableWriter

NAME = "item"
BLOCK_ROWS = 1 << 18


class Rows:
    """The rows to load, as arrays and as a file of records.

    Args:
        count: Number of rows.
        dim: Length of an embedding.
        folder: Where the file is written.
    """

    def __init__(self, count: int, dim: int, folder: Path) -> None:
        random = np.random.default_rng(0)
        self.keys = random.permutation(np.arange(count, dtype=np.int64) * 7919)
        self.embeddings = random.standard_normal((count, dim), dtype=np.float32)
        record = np.dtype([("key", "<i8"), ("embedding", "<f4", (dim,))])
        records = np.empty(count, record)
        records["key"], records["embedding"] = self.keys, self.embeddings
        records.tofile(folder / "rows.bin")
        self.file = RecordFile(folder / "rows.bin", record)

    def from_arrays(self, writer: TableWriter) -> None:
        """Loads block by block, as `Table.load` does."""
        for first in range(0, len(self.keys), BLOCK_ROWS):
            block = slice(first, first + BLOCK_ROWS)
            writer.write_rows(RowBlock(self.keys[block], self.embeddings[block], None))

    def from_records(self, writer: TableWriter) -> None:
        """Loads the file."""
        writer.load_records(self.file)


def main() -> None:
    """Measures, prints, and keeps the numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage.load", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        rows = Rows(options.rows, options.dim, Path(folder))
        for _ in range(options.rounds):
            for side, load in (("arrays", rows.from_arrays), ("records", rows.from_records)):
                runs.append({"side": side, **measured(rows, options.dim, load, folder)})
    show(runs, options.rows, options.dim)
    settings = {"rows": options.rows, "dim": options.dim, "rounds": options.rounds}
    launch.write_result("load", settings | {"runs": runs})


def measured(
    rows: Rows, dim: int, load: Callable[[TableWriter], None], folder: str
) -> dict[str, float]:
    """Loads a fresh table; returns the seconds of its reservation and of loading."""
    engine = Engine([0], 0)
    engine.open_store(folder, "load", 0, "benchmark", 1)
    engine.open_table(OpenedTable(NAME, dim, initializers.Uniform().native))
    writer = TableWriter(engine, NAME, dim, (0, dim), None)
    seconds = _timed(lambda: writer.reserve(len(rows.keys)))
    found = {"reserve_seconds": seconds[0], "reserve_processor_seconds": seconds[1]}
    seconds = _timed(lambda: load(writer))
    some = slice(0, 1000)
    if not np.array_equal(engine.lookup(NAME, dim, rows.keys[some]), rows.embeddings[some]):
        raise SystemExit("The table does not hold what was loaded.")
    engine.close_store()
    return found | {"seconds": seconds[0], "processor_seconds": seconds[1]}


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    started, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - processor


def show(runs: list[dict[str, float | str]], rows: int, dim: int) -> None:
    """Prints the medians of each side."""
    table = Table(title=f"{rows:,} rows of dim {dim}: medians")
    table.add_column("from")
    for heading in ("reserve, ns a row", "load, ns a row", "processor, ns a row", "load, GB/s"):
        table.add_column(heading, justify="right")
    for side in dict.fromkeys(str(run["side"]) for run in runs):
        reserve, load, processor = (
            statistics.median(float(run[name]) for run in runs if run["side"] == side)
            for name in ("reserve_seconds", "seconds", "processor_seconds")
        )
        cells = [f"{1e9 * value / rows:.0f}" for value in (reserve, load, processor)]
        table.add_row(side, *cells, f"{rows * (8 + 4 * dim) / load / 1e9:.2f}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
