"""What the sides of the memory benchmark share: keys, phases, how memory is counted."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

WARM_UP_STEPS = 3
WARM_UP_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class MemoryConfig:
    """The workload; equal on all sides.

    Args:
        rows: rows of the table; with 16 columns and Adagrad's one state, 8,388,608 rows are 1 GiB.
        dim: columns of an embedding.
        batch: keys per rank and step.
    """

    rows: int = 8_388_608
    dim: int = 16
    batch: int = 16_384

    @property
    def payload_bytes(self) -> int:
        """Bytes of all embeddings and of Adagrad's accumulators, once."""
        return self.rows * self.dim * 4 * 2


def parse_config(description: str) -> MemoryConfig:
    """Returns the configuration that the command line asks for."""
    parser = argparse.ArgumentParser(description=description)
    for field in dataclasses.fields(MemoryConfig):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    return MemoryConfig(**vars(parser.parse_args()))


def pss_bytes() -> int:
    """Returns this process's proportional set size: a page shared by n processes counts 1/n."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def sweep(config: MemoryConfig, rank: int, size: int) -> Iterator[np.ndarray]:
    """Yields this rank's share of all keys, batch by batch; every rank yields as many batches."""
    per_step = config.batch * size
    for step in range(math.ceil(config.rows / per_step)):
        start = step * per_step + rank * config.batch
        yield np.arange(start, start + config.batch, dtype=np.int64) % config.rows


@dataclasses.dataclass(frozen=True)
class TableUnderTest:
    """A table with its training step.

    Args:
        train: trains once on int64 keys `[batch]`.
        lookup: reads the rows of int64 keys `[batch]`.
    """

    train: Callable[[np.ndarray], object]
    lookup: Callable[[np.ndarray], object]


def measure(
    config: MemoryConfig,
    ranks: tuple[int, int],
    make_table: Callable[[str, int], TableUnderTest],
    total: Callable[[int], int],
) -> dict[str, int]:
    """Returns the ranks' summed PSS before and after the table is filled and read by every rank.

    Args:
        config: the workload.
        ranks: (rank, size).
        make_table: makes a table of (name, rows).
        total: sums a number over the ranks and waits for all of them.
    """
    rank, size = ranks
    # TensorFlow, Horovod and their buffers grow to their working size on a table that is too
    # small to count, so that the difference is the table's.
    warm = make_table("warm_up", WARM_UP_ROWS)
    keys = np.arange(config.batch, dtype=np.int64) % WARM_UP_ROWS
    for _ in range(WARM_UP_STEPS):
        warm.train(keys)
        warm.lookup(keys)
    gc.collect()
    before = total(pss_bytes())
    table = make_table("items", config.rows)
    for keys in sweep(config, rank, size):
        table.train(keys)
    for keys in sweep(config, 0, 1):
        table.lookup(keys)
    gc.collect()
    total(0)
    after = total(pss_bytes())
    return {"pss_before": before, "pss_after": after, "pss_growth": after - before}


def report(side: str, rank: int, size: int, result: dict[str, float]) -> None:
    """Prints rank 0's result as one JSON line."""
    if rank == 0:
        print(json.dumps({"side": side, "ranks": size} | result), flush=True)
