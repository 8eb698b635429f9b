"""The rows that nodes must train: those of trainers that read the data and own the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.roles.owner_engines import BY_KEY, opened
from tests.support.roles.split_roles import (
    TABLES,
    dataset,
    flat,
    step,
)
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import PlacementKind
from tfhybrid.core.update import UpdateChoices

EPOCHS = 2


def all_keys(trainers: int) -> list[np.ndarray]:
    """The keys of each table that occur, and a few that do not."""
    every = [[np.arange(200, 210)] for _ in TABLES]
    for rank in range(trainers):
        for features, _ in dataset((rank, trainers)):
            for of_table, keys in zip(every, flat(features), strict=True):
                of_table.append(keys)
    return [np.unique(np.concatenate(some)) for some in every]


def rows_of(engine: Engine, trainers: int) -> list[np.ndarray]:
    return [
        engine.lookup(name, dim, keys)
        for (name, dim), keys in zip(TABLES.items(), all_keys(trainers), strict=True)
    ]


def colocated(folder: Path, trainers: int, choices: UpdateChoices | None) -> list[np.ndarray]:
    """The rows of a run whose trainers read the data and own the tables."""
    folder.mkdir()
    placement = (PlacementKind.REPLICATED, 0) if trainers == 1 else BY_KEY
    with opened(folder, trainers, 0, [placement] * 2) as engines:
        updates = [engine.open_update("sgd", TABLES, choices) for engine in engines]
        for _ in range(EPOCHS):
            shards = [dataset((rank, trainers)) for rank in range(trainers)]
            for of_ranks in zip(*shards, strict=True):
                for rank, element in enumerate(of_ranks):
                    step(engines[rank], updates[rank], element, handles=False)
        for engine in engines:
            for name in TABLES:
                engine.wait(name)
        return rows_of(engines[0], trainers)
