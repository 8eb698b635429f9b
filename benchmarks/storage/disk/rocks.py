"""A side of the benchmark `disk`: the same steps with the rows in RocksDB, through rocksdict.

Runs in the environment that `benchmarks/support/peers/install_rocksdict` makes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time

import numpy as np
from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict, WriteBatch

from benchmarks.storage.disk.batches import (
    INITIAL,
    RATE,
    add_options,
    batches,
    gradients,
    record_bytes,
)

BLOCK = 65_536


def opened(directory: str, options: argparse.Namespace) -> Rdict:
    """Returns a database of all rows, whose cache has the bytes that tfhybrid's has."""
    settings = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(int(options.share * options.rows * record_bytes(options.dim))))
    table.set_bloom_filter(10, block_based=False)
    settings.set_block_based_table_factory(table)
    database = Rdict(directory, settings, access_type=AccessType.read_write())
    row = np.concatenate(
        [np.full(options.dim, 0.01, np.float32), np.full(options.dim, INITIAL, np.float32)]
    ).tobytes()
    for first in range(0, options.rows, BLOCK):
        batch = WriteBatch(raw_mode=True)
        for key in range(first, min(first + BLOCK, options.rows)):
            batch.put(key.to_bytes(8, "big"), row)
        database.write(batch)
    database.flush()
    return database


def step(database: Rdict, keys: np.ndarray, of_keys: np.ndarray, dim: int) -> None:
    """Reads the rows of the keys, applies Adagrad and writes them."""
    distinct, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
    names = [int(key).to_bytes(8, "big") for key in distinct]
    rows = np.frombuffer(b"".join(database.get(names)), np.float32).reshape(-1, 2, dim).copy()
    gradient = np.zeros((len(distinct), dim), np.float32)
    np.add.at(gradient, places, of_keys)
    gradient /= counts[:, np.newaxis]
    rows[:, 1] += gradient * gradient
    rows[:, 0] -= RATE * gradient / (np.sqrt(rows[:, 1]) + 1e-7)
    batch = WriteBatch(raw_mode=True)
    for name, row in zip(names, rows, strict=True):
        batch.put(name, row.tobytes())
    database.write(batch)


def main() -> None:
    """Trains, and prints the seconds of the steps that count."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.path) as directory:
        database = opened(directory, options)
        seconds = 0.0
        for number, keys in enumerate(batches(options)):
            if number == options.warm:
                seconds = 0.0
            of_keys = gradients(keys, options.dim)
            started = time.perf_counter()
            step(database, keys, of_keys, options.dim)
            seconds += time.perf_counter() - started
        database.close()
    sys.stdout.write(json.dumps({"side": "rocksdb", "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
