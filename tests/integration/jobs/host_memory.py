"""What each host has of a sharded table: memory while it trains with passes, and its rows.

    host_memory.py DIRECTORY

Each rank is a host. Ids come in order of time, all of them unseen at first; the same ids once more
are trained while memory is watched. Says the bytes of this host at the peak, and those that it may
have; and the rows of each share in the checkpoint that it writes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
from tensorflow import keras

import tfhybrid
from tfhybrid import checkpoint, distributed
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.data import Position

ROWS, DIM, BATCH, PASS, EXPECTED = 1_200_000, 32, 20_000, 2, 1000
SHM = Path("/dev/shm")


class Peak:
    """A context that watches this process's own memory and the shared memory of its host."""

    def __init__(self, own_before: int) -> None:
        self.host = self.passes = 0
        self._own_before = own_before
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.host = max(self.host, shared_bytes() + own_bytes() - self._own_before)
            sizes = [allocated(path) for path in SHM.glob("*/pass-*-*")]
            self.passes = max(self.passes, sum(sizes))


def allocated(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # let go meanwhile
        return 0


def shared_bytes() -> int:
    """Returns what is used of the host's /dev/shm."""
    found = os.statvfs(SHM)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def own_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) << 10


def built() -> tuple[keras.Model, tfhybrid.layers.EmbeddingCollection]:
    config = tfhybrid.TableConfig(
        DIM, optimizer="adagrad", placement=tfhybrid.Sharded(), expected_rows=EXPECTED
    )
    inputs = {"item": keras.Input((1,), dtype="int64", name="item")}
    layer = tfhybrid.layers.EmbeddingCollection({"item": config}, concatenate=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    return model, layer


def shards_in(directory: Path) -> tuple[int, int | None, dict[int, int]]:
    """Returns the rows of the whole table, those expected, and those of each host's files."""
    stored = StoredCheckpoint.open(next(directory.glob("step-*")))
    entry = stored.manifest.tables["item"]
    rows: Counter[int] = Counter()
    for name in entry.files:
        with (next(directory.glob("step-*")) / name).open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        rows[int(re.search(r"-host(\d+)-", name)[1])] += header["keys"]["shape"][0]
    return entry.rows, entry.expected_rows, dict(rows)


def main(directory: Path) -> None:
    before = shared_bytes()
    tfhybrid.init()
    model, layer = built()
    size, rank = tfhybrid.size(), tfhybrid.rank()
    keys = np.arange(rank, ROWS, size)[:, None]

    def train(first: int = 0) -> None:
        batches = [{"item": some} for some in np.split(keys, len(keys) // BATCH)][first:]
        for batch in tfhybrid.data.announce(batches, batches=PASS, layers=layer):
            model.train_on_batch(batch, np.ones(len(batch["item"]), np.float32))

    train()
    train(first=-2 * PASS)  # the index before the last one may still lie there
    distributed.barrier()
    with Peak(own_bytes()) as peak:
        train()
    (table,) = layer.tables.values()
    owners = table.owners()
    assert sum(shard.rows for shard in owners) == ROWS
    checkpoint.save(model, directory, Position(1, 0))
    distributed.barrier()
    rows, expected, shards = shards_in(directory)
    assert (rows, expected) == (ROWS, EXPECTED)
    assert shards == {shard.host: shard.rows for shard in owners}, (shards, owners)
    assert max(shards.values()) <= 1.1 * ROWS / size
    whole = sum(shard.bytes for shard in owners)
    sys.stdout.write(f"{rank=} host={peak.host - before} {whole=} passes={peak.passes}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
