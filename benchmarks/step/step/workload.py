"""The workload of the step benchmark, in NumPy alone: what every side trains on."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator

import numpy as np

FILL_SEED = 1
MEASURED_SEED = 2


@dataclasses.dataclass(frozen=True)
class StepConfig:
    """The workload; equal on all sides.

    Args:
        features: number of categorical features.
        dim: columns of an embedding.
        rows: rows of all tables together; every feature gets an equal share.
        batch: samples per rank and step.
        ids: "zipf" (bounded, by inverse CDF) or "uniform".
        exponent: exponent of the Zipf law.
        windows: number of timed windows, of which the median is reported.
        steps: steps per window.
        threads: TensorFlow intra-op threads per rank; 0 shares the processors among the ranks.
    """

    features: int = 26
    dim: int = 16
    rows: int = 4_000_000
    batch: int = 4096
    ids: str = "zipf"
    exponent: float = 1.2
    windows: int = 5
    steps: int = 20
    threads: int = 0

    @property
    def rows_per_feature(self) -> int:
        """Rows of one feature's table."""
        return math.ceil(self.rows / self.features)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds one option per field of `StepConfig`."""
    for field in dataclasses.fields(StepConfig):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)


def config_in(arguments: argparse.Namespace) -> StepConfig:
    """Returns the `StepConfig` in parsed arguments."""
    names = [field.name for field in dataclasses.fields(StepConfig)]
    return StepConfig(**{name: getattr(arguments, name) for name in names})


class Batches:
    """Ids and labels of one rank, as `[features, batch]` int64 and `[batch, 1]` float32.

    Args:
        config: the workload.
        rank: this rank.
        size: number of ranks.
    """

    def __init__(self, config: StepConfig, rank: int, size: int) -> None:
        self._config = config
        self._rank = rank
        self._size = size
        rows = config.rows_per_feature
        # A feature's popular ids lie anywhere in its table, as hashed or interned ids do.
        self._row_of = [
            np.random.default_rng((feature, rows)).permutation(rows)
            for feature in range(config.features)
        ]
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -config.exponent
        self._cumulative = np.cumsum(weights) / weights.sum()

    def fill(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields batches that over all ranks meet every row of every table at least once."""
        config = self._config
        per_step = config.batch * self._size
        for step in range(math.ceil(config.rows_per_feature / per_step)):
            start = step * per_step + self._rank * config.batch
            ids = np.arange(start, start + config.batch) % config.rows_per_feature
            yield self._batch(np.stack([row_of[ids] for row_of in self._row_of]), FILL_SEED)

    def measured(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields `count` batches of the configured distribution."""
        config = self._config
        random = np.random.default_rng((MEASURED_SEED, self._rank))
        for _ in range(count):
            if config.ids == "uniform":
                ids = random.integers(config.rows_per_feature, size=(config.features, config.batch))
            else:
                uniform = random.random((config.features, config.batch))
                popularity = np.searchsorted(self._cumulative, uniform, side="right")
                popularity = np.minimum(popularity, config.rows_per_feature - 1)
                ids = np.stack(
                    [row[rank] for row, rank in zip(self._row_of, popularity, strict=True)]
                )
            yield self._batch(ids, MEASURED_SEED)

    def _batch(self, ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.random.default_rng((seed, self._rank)).integers(2, size=(ids.shape[1], 1))
        return ids.astype(np.int64), labels.astype(np.float32)
