"""Publications: seconds of a base and of a delta, and what readers' lookups feel of them.

    python -m benchmarks.stream.publications [--rows 5000000] [--changed 100000] [--rounds 5]

A sync unit in this process publishes a table of `rows` x 16 to a folder; a reader in this process
follows. No trainer and no TensorFlow: updates are made up.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.stream.stream.numbered_update import numbered_update
from benchmarks.support.launch import write_result
from tfhybrid.serving import Reader
from tfhybrid.settings import shm_directory
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.sync_unit.publisher import PublishRules
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

LOGGER = logging.getLogger("benchmarks.stream.publications")

DIM = 16
UPDATE_ROWS = 500_000
LOOKUP_KEYS = 13_000  # 500 candidates x 26 features


class Lookups:
    """Looks rows up on a thread of its own, and keeps how long each lookup took."""

    def __init__(self, reader: Reader, rows: int) -> None:
        self.seconds: list[float] = []
        self._reader = reader
        self._rows = rows
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Lookups:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        random = np.random.default_rng(1)
        while not self._ends.is_set():
            keys = {"item": random.integers(0, self._rows, LOOKUP_KEYS)}
            started = time.perf_counter()
            self._reader.read(keys)
            self.seconds.append(time.perf_counter() - started)


class Training:
    """Applies updates of a target model, one lease after the other."""

    def __init__(self, unit: SyncUnit) -> None:
        self._model = unit.models["ads"]
        self._model.open(ModelSpec({"item": TableSpec(DIM)}), [])
        self._model.begin("rows", QueuePosition(0, 0))
        self._number = 0

    def update(self, keys: np.ndarray) -> None:
        """Adds one to the rows of keys."""
        number, self._number = self._number, self._number + 1
        ones = np.ones((len(keys), DIM), np.float32)
        self._model.apply(
            numbered_update("rows", number, len(keys), number, {"item": keys}, {"item": ones})
        )


def timed(do: object) -> float:
    """Returns how many seconds a function takes."""
    started = time.perf_counter()
    do()  # type: ignore[operator]
    return time.perf_counter() - started


def measure(folder: Path, rows: int, changed: int, rounds: int) -> dict[str, float]:
    """Publishes a base and deltas; returns medians, in seconds, and sizes in MB."""
    rules = PublishRules(str(folder / "published"), seconds=1e9)
    unit = SyncUnit(
        ["ads"], folder / "models", Path(shm_directory()), fsync="never", publish={"ads": rules}
    )
    training, publisher = Training(unit), unit.publishers["ads"]
    for first in range(0, rows, UPDATE_ROWS):
        training.update(np.arange(first, min(first + UPDATE_ROWS, rows)))
    LOGGER.info("%s rows are trained", f"{rows:,}")
    reader = Reader(folder / "published", name="ads")
    found = {"publish_base_seconds": timed(publisher.publish)}
    found["base_mb"] = publisher.last.bytes / 1e6 if publisher.last else 0.0
    found["read_base_seconds"] = timed(reader.refresh)
    LOGGER.info("a base: %.1f s, read in %.1f s", *list(found.values())[::2])
    random = np.random.default_rng(0)
    published, read = [], []
    with Lookups(reader, rows) as lookups:
        for _ in range(rounds):
            training.update(random.choice(rows, changed, replace=False))
            published.append(timed(publisher.publish))
            read.append(timed(reader.refresh))
            LOGGER.info("a delta: %.2f s, read in %.2f s", published[-1], read[-1])
    found["publish_delta_seconds"] = float(np.median(published))
    found["read_delta_seconds"] = float(np.median(read))
    found["delta_mb"] = publisher.last.bytes / 1e6 if publisher.last else 0.0
    for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0)):
        found[f"lookup_{name}_ms"] = 1e3 * float(np.quantile(lookups.seconds, share))
    reader.close()
    unit.close()
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--changed", type=int, default=100_000, help="rows of a delta")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="on the disk that is measured")
    parser.add_argument("--name", default="publications", help="name of the result file")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        found = measure(Path(folder), arguments.rows, arguments.changed, arguments.rounds)
    table = Table("", "", title=f"{arguments.rows:,} rows x {DIM}, {arguments.changed:,} changed")
    for name, value in found.items():
        table.add_row(name.replace("_", " "), f"{value:,.3g}")
    console = Console()
    console.print(table)
    sizes = {"rows": arguments.rows, "changed": arguments.changed, "rounds": arguments.rounds}
    console.print(write_result(arguments.name, sizes | found))


if __name__ == "__main__":
    main()
