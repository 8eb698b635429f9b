"""The two shapes of the benchmark of roles, in NumPy alone: what data nodes and trainers read.

A data node imports this module as the script of the job, and calls `train_data`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.roles.ads import workload as ads
from benchmarks.roles.roles import source
from benchmarks.step.step import workload as step
from tfhybrid.data import Ragged, Shard

SHAPES = ("step", "ads")
# Batches that nobody trains: so sources are still read from, and connections open, at the end.
SURPLUS = 16
ADS_DISTINCT = 8  # batches of the ads shape that are drawn; later ones are these again
Element = tuple[dict[str, Any], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained; equal on all sides.

    Args:
        shape: "step": the 26 features of that benchmark; "ads": the 300 of that one.
        ids: "zipf" or "uniform"; the ads shape has Zipf's alone.
        features: number of features.
        dim: columns of an embedding; the ads shape has its own mix.
        rows: of all tables of the step shape; of each table of the ads shape.
        sequence: the most keys of a bag of the ads shape.
        dense: numbers of a sample that are no ids.
        batch: samples per rank and step.
        windows: timed windows, of which the median is reported.
        steps: steps of a window.
    """

    shape: str = "step"
    ids: str = "zipf"
    features: int = 26
    dim: int = 16
    rows: int = 4_000_000
    sequence: int = 50
    dense: int = 13
    batch: int = 4096
    windows: int = 5
    steps: int = 20

    @property
    def measured(self) -> int:
        """Steps of all windows, of which the first is not timed."""
        return self.steps * (self.windows + 1)

    def tables(self) -> dict[str, tuple[int, bool]]:
        """Returns the dim of each feature's table, and whether the feature is a bag."""
        if self.shape == "step":
            return {f"feature_{i}": (self.dim, False) for i in range(self.features)}
        return {each.name: (each.dim, each.sequence) for each in self._ads().layout}

    def batches(self, rank: int, size: int) -> Sequence[Element]:
        """Returns the batches of a rank; in the step shape, first those that meet every row."""
        made = self._of_step(rank, size) if self.shape == "step" else self._of_ads(rank)
        random = np.random.default_rng((3, rank))
        dense = random.normal(size=(self.batch, self.dense)).astype(np.float32)
        more = {"dense": dense} if self.dense else {}
        return [(features | more, labels) for features, labels in made]

    def _of_step(self, rank: int, size: int) -> Iterator[Element]:
        config = step.StepConfig(
            features=self.features, dim=self.dim, rows=self.rows, batch=self.batch, ids=self.ids
        )
        drawn = step.Batches(config, rank, size)
        for ids, labels in itertools.chain(drawn.fill(), drawn.measured(self.measured + SURPLUS)):
            yield {f"feature_{i}": keys[:, None] for i, keys in enumerate(ids)}, labels

    def _of_ads(self, rank: int) -> Sequence[Element]:
        drawn = ads.Batches(self._ads(), rank)
        made = [self._bags(*drawn.next(), rank) for _ in range(ADS_DISTINCT)]
        count = ADS_DISTINCT + self.measured + SURPLUS
        return list(itertools.islice(itertools.cycle(made), count))

    def _bags(self, sequences: np.ndarray, others: np.ndarray, rank: int) -> Element:
        bags, rest = iter(sequences), iter(others)
        features: dict[str, Any] = {}
        for name, (_, is_bag) in self.tables().items():
            if not is_bag:
                features[name] = next(rest)
                continue
            keys = next(bags)
            lengths = (keys != ads.PAD).sum(axis=1)
            splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            features[name] = Ragged(keys[keys != ads.PAD], splits)
        labels = np.random.default_rng((2, rank)).integers(2, size=(self.batch, 1))
        return features, labels.astype(np.float32)

    def _ads(self) -> ads.AdsConfig:
        return ads.AdsConfig(
            features=self.features, sequence=self.sequence, rows=self.rows, batch=self.batch
        )


class Prepared:
    """Batches of this process's memory."""

    def __init__(self, batches: Sequence[Element]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Element]:
        return iter(self._batches)


def train_data(shard: Shard, workload: Mapping[str, Any], address: str) -> Any:
    """Returns the batches of a shard.

    Args:
        shard: Of a rank.
        workload: The fields of a `Workload`.
        address: HOST:PORT of the `source` that they are read from; empty: they are drawn here.
    """
    if address:
        return source.Remote(address, shard.rank)
    return Prepared(Workload(**workload).batches(shard.rank, shard.size))
