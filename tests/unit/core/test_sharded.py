"""Sharded tables: several hosts as engines of this process, against plain NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfhybrid
from tests.support.core.sharded_hosts import Hosts, Placements
from tests.support.reference import training
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerKind, PlacementKind, TableStatsStruct
from tfhybrid.core.update import UpdateChoices
from tfhybrid.initializers import Uniform

TABLES = {"item": 3, "user": 16}
INITIALIZER = Uniform()
RATE = 0.1
SHARDED = (PlacementKind.BY_KEY, 0)
REPLICATED = (PlacementKind.REPLICATED, 0)
STEPS = 5


ADAGRAD = {"kind": OptimizerKind.ADAGRAD, "initial_accumulator_value": 0.1, "epsilon": 1e-7}


def opened(directory: Path, hosts: int, placements: Placements, cache_bytes: int = 0) -> Hosts:
    """Engines of `hosts` hosts with a rank each, all connected; with a cache rows lie in files."""
    options = {"cache_bytes": cache_bytes, "placements": placements}
    return Hosts(directory, range(hosts), TABLES, ADAGRAD, **options)


def batch(step: int, rank: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Keys of each table, some twice, of which hosts have some in common, and gradients."""
    random = np.random.default_rng([step, rank])
    count = 0 if (step, rank) == (2, 1) else 40 + 7 * rank
    keys = [random.integers(-50, 50 + 20 * step, count) for _ in TABLES]
    for of_table in keys:
        of_table[:3] = np.array([0, -(2**63), 2**63 - 1])[: len(of_table)]
    gradients = [random.normal(size=(count, dim)).astype(np.float32) for dim in TABLES.values()]
    return keys, gradients


def train(
    engines: Sequence[Engine],
    choices: UpdateChoices | None = None,
    first: int = 0,
    steps: int = STEPS,
) -> None:
    """Trains steps from `first` on, one rank for each engine."""
    updates = [engine.open_update("sgd", TABLES, choices) for engine in engines]
    for step in range(first, first + steps):
        for rank, update in enumerate(updates):
            keys, gradients = batch(step, rank)
            update.post(keys, gradients, [RATE] * 2, samples=len(keys[0]))
        for engine in engines:
            for name in TABLES:
                engine.wait(name)


def rows_of(engine: Engine) -> list[np.ndarray]:
    keys = np.arange(-60, 200)
    return [engine.lookup(name, dim, keys) for name, dim in TABLES.items()]


def reference(ranks: int, reduction: str = "frequency") -> dict[str, training.Table]:
    tables = {
        name: training.Table(
            name, tfhybrid.TableConfig(dim, initializer=INITIALIZER), training.Adagrad(RATE)
        )
        for name, dim in TABLES.items()
    }
    for step in range(STEPS):
        batches = [batch(step, rank) for rank in range(ranks)]
        samples = [len(keys[0]) for keys, _ in batches]
        for number, table in enumerate(tables.values()):
            of_ranks = [
                training.sum_by_key(keys[number], gradients[number]) for keys, gradients in batches
            ]
            table.update(training.reduce(of_ranks, samples, reduction))
    return tables


@pytest.mark.parametrize("reduction", ["frequency", "mean", "sum"])
@pytest.mark.parametrize("hosts", [2, 3, 4])
@pytest.mark.parametrize(
    "placements",
    [(SHARDED, SHARDED), (SHARDED, REPLICATED), ((PlacementKind.WHOLE, 1), SHARDED)],
    ids=["sharded", "mixed", "whole"],
)
def test_all_placements_train_the_same_rows(
    shm_directory: Path, hosts: int, placements: Any, reduction: str
) -> None:
    before = native.counters()  # of all hosts: they are in this process
    with opened(shm_directory, hosts, placements) as engines:
        train(engines, UpdateChoices(reduction=reduction))
        all_rows = [rows_of(engine) for engine in engines]
        counts = [rows_in(engine) for engine in engines]
    counted = {name: count - before[name] for name, count in native.counters().items()}
    batches = [batch(step, rank)[0] for step in range(STEPS) for rank in range(hosts)]
    assert counted["samples"] == hosts * sum(len(keys[0]) for keys in batches)
    assert counted["steps"] == hosts * STEPS
    assert counted["sent_bytes"] == counted["received_bytes"] > 0
    wanted = reference(hosts, reduction)
    keys = np.arange(-60, 200)
    for found in all_rows:
        for table, rows, first in zip(wanted.values(), found, all_rows[0], strict=True):
            np.testing.assert_allclose(rows, table.lookup(keys), rtol=2e-5, atol=1e-7)
            np.testing.assert_array_equal(rows, first)
    for number, (table, (kind, owner)) in enumerate(zip(wanted.values(), placements, strict=True)):
        of_hosts = [rows[number] for rows in counts]
        if kind == PlacementKind.REPLICATED:
            assert of_hosts == [len(table.rows)] * hosts
        else:  # each key has a row on its owner alone
            assert sum(of_hosts) == len(table.rows)
            assert kind == PlacementKind.BY_KEY or of_hosts[owner] == len(table.rows)


def test_the_bits_are_those_of_replicated_tables(tmp_path: Path) -> None:
    """Where keys lie changes nothing; a host alone has no others to add up in another order."""
    found = {}
    for name, placement in {"sharded": SHARDED, "whole": (PlacementKind.WHOLE, 0)}.items():
        (tmp_path / name).mkdir()
        with opened(tmp_path / name, 3, [placement] * 2) as engines:
            train(engines, UpdateChoices())
            found[name] = rows_of(engines[1])
    for sharded, whole in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(sharded, whole)


def test_rows_that_lie_in_files_are_the_same(tmp_path: Path) -> None:
    found = {}
    for name, cache_bytes in {"memory": 0, "files": 1 << 20}.items():
        (tmp_path / name).mkdir()
        with opened(tmp_path / name, 2, [SHARDED] * 2, cache_bytes) as engines:
            train(engines, UpdateChoices())
            found[name] = rows_of(engines[0])
    for in_memory, in_files in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(in_memory, in_files)


def rows_in(engine: Engine) -> list[int]:
    counts = []
    for name in TABLES:
        struct = TableStatsStruct()
        engine.call("table_stats_get", name.encode(), ctypes.byref(struct))
        counts.append(struct.rows)
    return counts
