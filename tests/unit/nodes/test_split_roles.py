"""Data nodes, embedding nodes and trainers train the rows of a run without roles, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.nodes.split_roles import TABLES, dataset, flat, split_job, step
from tests.unit.nodes.test_owner_engines import BY_KEY, opened
from tfhybrid.core import batches
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
            for of_ranks in zip(*(dataset((rank, trainers)) for rank in range(trainers))):
                for rank, element in enumerate(of_ranks):
                    step(engines[rank], updates[rank], element, places=False)
        for engine in engines:
            for name in TABLES:
                engine.wait(name)
        return rows_of(engines[0], trainers)


@pytest.mark.parametrize("reduction", ["frequency", "mean"])
@pytest.mark.parametrize("trainers", [1, 2])
@pytest.mark.parametrize("embedding", [1, 2, 3])
@pytest.mark.parametrize("data", [1, 2])
def test_the_bits_are_those_of_a_run_without_roles(
    tmp_path: Path, data: int, embedding: int, trainers: int, reduction: str
) -> None:
    choices = UpdateChoices(reduction=reduction)
    with split_job(tmp_path / "split", data, embedding, trainers) as job:
        job.train(choices, EPOCHS)
        found = [rows_of(engine, trainers) for engine in job.engines[:trainers]]
        created = [sum(node.table_stats(name).rows for node in job.owners) for name in TABLES]
        # Of each epoch what was looked up last, and what was asked for behind it.
        assert all(batches.held(node)[0] <= trainers * EPOCHS * 5 for node in job.owners)
    wanted = colocated(tmp_path / "colocated", trainers, choices)
    for of_trainer in found:
        for rows, same in zip(of_trainer, wanted, strict=True):
            np.testing.assert_array_equal(rows, same)
    assert created == [len(keys) - 10 for keys in all_keys(trainers)]
