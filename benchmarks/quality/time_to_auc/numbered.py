"""Samples with row numbers in place of keys, for sides without an index; without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.sharding import Shard, Steps

PARTS = ("train", "valid", "test")
LABEL = "label"


def numbered(parts: Sequence[Clicks]) -> tuple[list[Clicks], dict[str, int]]:
    """Returns samples with row numbers in place of keys, and the number of rows of each feature.

    Args:
        parts: Parts of a data set; a key has the same number in all of them.
    """
    rows = {
        name: np.unique(np.concatenate([clicks.features[name] for clicks in parts]))
        for name in parts[0].features
    }
    numbers = [
        Clicks(
            {name: np.searchsorted(rows[name], keys) for name, keys in clicks.features.items()},
            clicks.label,
        )
        for clicks in parts
    ]
    return numbers, {name: len(keys) for name, keys in rows.items()}


def save(path: Path, parts: Sequence[Clicks]) -> None:
    """Writes numbered samples for processes that cannot read the data set.

    Args:
        path: File to write, `.npz`.
        parts: Samples to train on, to stop by and to judge by.
    """
    columns = {}
    for part, clicks in zip(PARTS, parts, strict=True):
        columns |= {f"{part}/{name}": keys for name, keys in clicks.features.items()}
        columns[f"{part}/{LABEL}"] = clicks.label
    np.savez(path, **columns)


def load(path: Path) -> dict[str, Clicks]:
    """Returns the samples of a file that `save` wrote, by part."""
    with np.load(path) as columns:
        return {
            part: Clicks(
                {
                    name.removeprefix(f"{part}/"): columns[name]
                    for name in columns
                    if name.startswith(f"{part}/") and name != f"{part}/{LABEL}"
                },
                columns[f"{part}/{LABEL}"],
            )
            for part in PARTS
        }


def batches(clicks: Clicks, batch: int, shard: Shard, seed: int, epoch: int) -> Iterator[Clicks]:
    """Yields a rank's batches of an epoch: those of `tfhybrid.data.Batches`.

    Args:
        clicks: Samples of all ranks.
        batch: Number of samples of a step, of all ranks.
        shard: Number of this rank, and number of ranks.
        seed: Seed of the order.
        epoch: Number of the epoch, from 0.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(clicks))
    steps = Steps(len(clicks), batch // shard.size, shard.size)
    for step in range(steps.count):
        yield clicks.take(order[shard.part(*steps.bounds(step))])
