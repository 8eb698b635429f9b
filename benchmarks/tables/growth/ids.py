"""The workload of the growth benchmark: which keys a rank trains on, seen and unseen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

# An odd number, by which ids are multiplied modulo 2^64: keys that are all different and look
# like hashes.
SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True)
class GrowthConfig:
    """The workload.

    Args:
        first: rows before the first measured step.
        last: rows at which it ends.
        keys: keys of a step and rank, all different.
        new: share of them that no rank has seen before.
    """

    first: int = 1_000_000
    last: int = 20_000_000
    keys: int = 65_536
    new: float = 0.5

    @property
    def new_keys(self) -> int:
        """Unseen keys of a step and rank."""
        return round(self.keys * self.new)


class Ids:
    """Hands out this rank's ids; the ranks call it equally often, and so know of all rows.

    Args:
        config: the workload.
        rank: this rank.
        size: number of ranks.
    """

    def __init__(self, config: GrowthConfig, rank: int, size: int) -> None:
        self._config = config
        self._rank = rank
        self._size = size
        self._random = np.random.default_rng(rank)
        self.rows = 0

    def batch(self, new: int) -> np.ndarray:
        """Returns the keys of `new` unseen ids and of seen ones, shuffled."""
        seen = self._config.keys - new
        start = self.rows + self._rank * new
        ids = np.concatenate(
            [
                np.arange(start, start + new),
                self._random.choice(self.rows, seen, replace=False) if seen else [],
            ]
        )
        self.rows += new * self._size
        return (self._random.permutation(ids).astype(np.uint64) * SPREAD).astype(np.int64)

    def fill(self) -> Iterator[np.ndarray]:
        """Yields batches of unseen keys until there are the first rows."""
        for _ in range(math.ceil(self._config.first / (self._config.keys * self._size))):
            yield self.batch(self._config.keys)
