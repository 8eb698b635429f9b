"""Two sharded tables, what is trained in them, and the same in plain NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tfhybrid
from tests.support.core.sharded_hosts import Hosts, Placements
from tests.support.reference import training
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerKind, PlacementKind, TableStatsStruct
from tfhybrid.core.update import UpdateChoices
from tfhybrid.initializers import Uniform

TABLES = {"item": 3, "user": 16}
INITIALIZER = Uniform()
RATE = 0.1
SHARDED = (PlacementKind.BY_KEY, 0)
STEPS = 5
KEYS = np.arange(-60, 200)  # all keys of all batches but two
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
    return [engine.lookup(name, dim, KEYS) for name, dim in TABLES.items()]


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


def rows_in(engine: Engine) -> list[int]:
    counts = []
    for name in TABLES:
        struct = TableStatsStruct()
        engine.call("table_stats_get", name.encode(), ctypes.byref(struct))
        counts.append(struct.rows)
    return counts
