"""The ads shape: many features of mixed dims, a third of them padded sequences, Zipf ids."""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np

DIMS = (4, 8, 16, 32)
PAD = 0


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature.

    Args:
        name: its name.
        dim: columns of its table.
        length: keys per sample; shorter sequences are padded.
        sequence: whether its sequences have different lengths.
    """

    name: str
    dim: int
    length: int
    sequence: bool


@dataclasses.dataclass(frozen=True)
class AdsConfig:
    """The workload.

    Args:
        features: number of features, before they are folded.
        sequence: keys of a sequence, padding included; every third feature is one.
        rows: ids of a feature; with the padding its table has one row more.
        batch: samples per rank and step.
        exponent: exponent of the Zipf law.
        fold: how many features are laid into one, that has as many more keys and rows: the same
            keys of a step over fewer features.
        rounds: windows in which each cut of a step is timed.
    """

    features: int = 300
    sequence: int = 50
    rows: int = 100_000
    batch: int = 512
    exponent: float = 1.2
    fold: int = 1
    rounds: int = 5

    @property
    def rows_per_feature(self) -> int:
        """Ids of a feature after folding."""
        return self.rows * self.fold

    @property
    def layout(self) -> list[Feature]:
        """All features."""
        return [
            Feature(
                name=f"feature_{position}",
                dim=DIMS[position % len(DIMS)],
                length=self.fold * (self.sequence if position % 3 == 0 else 1),
                sequence=position % 3 == 0,
            )
            for position in range(self.features // self.fold)
        ]

    @property
    def keys_per_sample(self) -> int:
        """Keys of a sample over all features, padding included."""
        return sum(feature.length for feature in self.layout)

    @property
    def floats_per_sample(self) -> int:
        """Numbers in the embeddings of a sample's keys."""
        return sum(feature.length * feature.dim for feature in self.layout)


def parse_config(description: str) -> AdsConfig:
    """Returns the configuration that the command line asks for."""
    parser = argparse.ArgumentParser(description=description)
    for field in dataclasses.fields(AdsConfig):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    config = AdsConfig(**vars(parser.parse_args()))
    if config.features % config.fold or config.features // config.fold < 2:
        parser.error(f"features is a multiple of fold, twice or more. Received: {config}")
    return config


class Batches:
    """Draws the keys of one rank.

    Args:
        config: the workload.
        rank: this rank.
    """

    def __init__(self, config: AdsConfig, rank: int) -> None:
        self._config = config
        self._random = np.random.default_rng((1, rank))
        rows = config.rows_per_feature
        # Popular ids lie anywhere in a table. PAD is no id.
        self._id_of = np.random.default_rng(0).permutation(rows) + PAD + 1
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -config.exponent
        self._cumulative = np.cumsum(weights) / weights.sum()

    def next(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys of all sequences and of all others, each `[features, batch, length]`."""
        layout = self._config.layout
        sequences = np.stack([self._keys(feature) for feature in layout if feature.sequence])
        others = np.stack([self._keys(feature) for feature in layout if not feature.sequence])
        lengths = self._random.integers(1, sequences.shape[2] + 1, size=sequences.shape[:2])
        sequences[np.arange(sequences.shape[2]) >= lengths[..., None]] = PAD
        return sequences, others

    def _keys(self, feature: Feature) -> np.ndarray:
        shape = (self._config.batch, feature.length)
        popularity = np.searchsorted(self._cumulative, self._random.random(shape), side="right")
        return self._id_of[np.minimum(popularity, len(self._id_of) - 1)]
