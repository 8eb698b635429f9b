"""The batches of the disk benchmark, the same for every side."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

RATE, INITIAL = np.float32(0.05), np.float32(0.1)
EXPONENT = 1.05


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that all sides have."""
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--keys", type=int, default=8192, help="of a step, repeated ones counted")
    parser.add_argument("--steps", type=int, default=200, help="that are measured")
    parser.add_argument("--warm", type=int, default=100, help="steps before those")
    parser.add_argument("--ids", choices=["zipf", "uniform"], default="zipf")
    parser.add_argument("--share", type=float, default=0.25, help="of the rows that memory holds")
    parser.add_argument("--path", default="/var/tmp", help="a directory on the disk")


def batches(options: argparse.Namespace) -> Iterator[np.ndarray]:
    """Yields the keys of each step, `--warm` of them and then `--steps`."""
    random = np.random.default_rng(11)
    # Frequent keys lie anywhere among the rows.
    order = random.permutation(options.rows)
    cumulated = np.cumsum(np.arange(1, options.rows + 1, dtype=np.float64) ** -EXPONENT)
    for _ in range(options.warm + options.steps):
        if options.ids == "uniform":
            yield random.integers(0, options.rows, options.keys)
        else:
            drawn = random.random(options.keys) * cumulated[-1]
            yield order[np.searchsorted(cumulated, drawn)]


def gradients(keys: np.ndarray, dim: int) -> np.ndarray:
    """Returns a gradient for each key."""
    return np.outer(np.sin(keys), np.ones(dim)).astype(np.float32)


def bytes_from_disk() -> int:
    """Returns how many bytes the disk has read for this process, also before writes."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def record_bytes(dim: int) -> int:
    """Returns the bytes of a row: its embedding, and Adagrad's state."""
    return 2 * 4 * dim
