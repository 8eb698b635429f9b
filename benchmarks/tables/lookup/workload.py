"""What every side of the lookup benchmark shares: sizes, keys, gradients, Adagrad's constants."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np

DIM = 16
KEYS = 65_536
LEARNING_RATE = 0.05
INITIAL_ACCUMULATOR = 0.1
EPSILON = 1e-7

_SEEDS = {"lookup": 1, "update": 2, "create": 3, "bags": 5, "bag_gradients": 6}


def check_rows(parser: argparse.ArgumentParser, rows: int) -> None:
    """Ends the program if a call cannot have `KEYS` different keys."""
    if rows < KEYS:
        parser.error(f"--rows is at least {KEYS:,}, the keys of a call. Received: {rows}")


def fill(rows: int) -> Iterator[np.ndarray]:
    """Yields all keys, 0 to `rows` - 1, in random order and batches of `KEYS` different ones."""
    order = np.random.default_rng(0).permutation(rows)
    for batch in range(math.ceil(rows / KEYS)):
        yield order[np.arange(batch * KEYS, (batch + 1) * KEYS) % rows]


def keys(operation: str, rows: int, call: int) -> np.ndarray:
    """Returns the keys of the `call`-th call of an operation, the same on all sides.

    Args:
        operation: "lookup", "bags" and "bag_gradients" (present, uniform), "update" (present, all
            different) or "create" (unseen, all different).
        rows: rows that the tables were filled with.
        call: counts from 0.
    """
    random = np.random.default_rng((_SEEDS[operation], call))
    if operation in ("lookup", "bags", "bag_gradients"):
        return random.integers(rows, size=KEYS)
    if operation == "update":
        return random.choice(rows, KEYS, replace=False)
    return rows + call * KEYS + random.permutation(KEYS)


def bag_splits() -> np.ndarray:
    """Returns where the bags of a call begin and end: 0 to 16 keys each, int64 `[bags + 1]`."""
    lengths = np.random.default_rng(7).integers(0, 17, KEYS)
    ends = np.cumsum(lengths)
    return np.concatenate([[0], ends[ends < KEYS], [KEYS]])


def gradients() -> np.ndarray:
    """Returns gradients, or values, for one call: float32 `[KEYS, DIM]`."""
    return np.random.default_rng(4).normal(0, 1e-3, (KEYS, DIM)).astype(np.float32)
