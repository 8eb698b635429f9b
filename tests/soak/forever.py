"""Batches without end, of which each is known by its number alone: the script of data nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.support.core.sharded_tables import TABLES
from tests.support.roles.split_roles import flat
from tfhybrid.data import Shard

SAMPLES, KEYS = 8, 500
Element = tuple[dict[str, np.ndarray], np.ndarray]


def batch(number: int) -> Element:
    random = np.random.default_rng(number)
    features = {
        "clicked": random.integers(KEYS, size=(SAMPLES, 3)),
        "carted": random.integers(KEYS, size=(SAMPLES, 2)),
        "who": random.integers(KEYS, size=SAMPLES),
        "price": random.normal(size=(SAMPLES, 4)).astype(np.float32),
    }
    return features, random.integers(0, 2, SAMPLES).astype(np.float32)


class Forever:
    """All batches from a number on."""

    def __init__(self, first: int) -> None:
        self._first = first

    def __iter__(self) -> Iterator[Element]:
        return map(batch, itertools.count(self._first))


def dataset(_: Shard, first: int) -> Forever:
    return Forever(first)


def all_keys(steps: int) -> dict[str, np.ndarray]:
    """The distinct keys of each table in the first steps."""
    of_steps = [flat(batch(number)[0]) for number in range(steps)]
    return {
        name: np.unique(np.concatenate(some))
        for name, some in zip(TABLES, zip(*of_steps, strict=True), strict=True)
    }
