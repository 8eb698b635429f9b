"""Embedding nodes as engines of this process: trainers own nothing, and the bits stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.core import sharded_tables
from tests.support.core.sharded_tables import STEPS, TABLES, reference, rows_in, rows_of
from tests.support.roles.owner_engines import BY_KEY, opened
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import PlacementKind
from tfhybrid.core.update import UpdateChoices


def train(engines: Sequence[Engine], trainers: int, choices: UpdateChoices) -> None:
    for node in engines[trainers:]:
        node.open_update("sgd", TABLES, choices)
    sharded_tables.train(engines[:trainers], choices)
    for node in engines[trainers:]:  # a node may still apply what the trainers know to come
        none = [np.empty(0, np.int64)] * 2
        node.read(TABLES, none, min_versions=[STEPS] * 2)


@pytest.mark.parametrize("trainers", [1, 2])
@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("reduction", ["frequency", "mean"])
def test_trainers_that_own_nothing_train_the_same_rows(
    tmp_path: Path, trainers: int, nodes: int, reduction: str
) -> None:
    choices = UpdateChoices(reduction=reduction)
    with opened(tmp_path, trainers, nodes) as engines:
        train(engines, trainers, choices)
        found = [rows_of(engine) for engine in engines[:trainers]]
        counts = [rows_in(engine) for engine in engines]
    (tmp_path / "alone").mkdir()
    replicated = [(PlacementKind.REPLICATED, 0)] * 2
    placements = replicated if trainers == 1 else [BY_KEY] * 2
    with opened(tmp_path / "alone", trainers, 0, placements) as engines:
        train(engines, trainers, choices)
        colocated = rows_of(engines[0])
    keys = np.arange(-60, 200)
    wanted = reference(trainers, reduction)
    for of_trainer in found:
        for rows, same, table in zip(of_trainer, colocated, wanted.values(), strict=True):
            np.testing.assert_array_equal(rows, same)
            np.testing.assert_allclose(rows, table.lookup(keys), rtol=2e-5, atol=1e-7)
    assert counts[:trainers] == [[0, 0]] * trainers
    for number, table in enumerate(wanted.values()):
        assert sum(of_node[number] for of_node in counts[trainers:]) == len(table.rows)


def test_a_whole_table_lies_on_the_node_that_is_named(tmp_path: Path) -> None:
    placements = [(PlacementKind.WHOLE, 1), BY_KEY]
    with opened(tmp_path, 1, 2, placements) as engines:
        train(engines, 1, UpdateChoices())
        _, first, second = [rows_in(engine)[0] for engine in engines]
    assert (first, second) == (0, len(reference(1)["item"].rows))


@pytest.mark.parametrize("clipping", ["norm", "global_norm"])
def test_clipping_adds_up_squares_of_nodes(tmp_path: Path, clipping: str) -> None:
    found = []
    for trainers, nodes in [(2, 0), (2, 1), (2, 3)]:
        folder = tmp_path / str(nodes)
        folder.mkdir()
        with opened(folder, trainers, nodes) as engines:
            train(engines, trainers, UpdateChoices(clipping=clipping, clip_limit=0.5))
            found.append(rows_of(engines[1]))
    for other in found[1:]:
        for rows, same in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(rows, same)
