"""Passes: rows that come ahead of time are those that a lookup would have brought, bit for bit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.unit.core.sharded_hosts import Hosts
from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerFlag, OptimizerKind
from tfhybrid.core.update import UpdateChoices
from tfhybrid.errors import ConfigError

TABLES = {"item": 3, "user": 16}
STEPS = 9
EVERYWHERE = np.arange(-60, 260)  # all keys of all batches but three
ADAGRAD = {"kind": OptimizerKind.ADAGRAD, "initial_accumulator_value": 0.1, "epsilon": 1e-7}
ADAM = {"kind": OptimizerKind.ADAM, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
FTRL = {"kind": OptimizerKind.FTRL, "initial_accumulator_value": 0.1, "l1": 0.01, "l2": 0.02}
UNSEEN = {"kind": 1, "admission": 1, "slices_log2": 3, "unseen_steps": 2}


@dataclasses.dataclass(frozen=True)
class Case:
    """How tables are trained.

    Args:
        optimizer: Fields of `native.OptimizerConfigStruct`.
        clipping: Of `UpdateChoices`.
        policy: Fields of `native.RowPolicyStruct`.
    """

    optimizer: dict[str, float]
    clipping: str = "none"
    policy: dict[str, float] | None = None


CASES = {
    "adagrad": Case(ADAGRAD),
    "adam": Case(ADAM),
    "ftrl": Case(FTRL),
    "clipped": Case(ADAM, clipping="norm"),
    "global": Case(ADAGRAD, clipping="global_norm"),
    "decay": Case({**ADAM, "weight_decay": 0.3}),
    "strong_decay": Case({"kind": OptimizerKind.SGD, "weight_decay": 9.0}),
    "every_row": Case({**ADAM, "flags": OptimizerFlag.EVERY_ROW}),
    "evicted": Case(ADAGRAD, policy=UNSEEN),
}


def keys_of(step: int, rank: int) -> dict[str, np.ndarray]:
    """The keys of a batch, of which ranks have some in common; rank 1 has an empty one."""
    random = np.random.default_rng([step, rank])
    count = 0 if (step, rank) == (2, 1) else 40 + 7 * rank
    keys = {name: random.integers(-50, 50 + 20 * step, count) for name in TABLES}
    for of_table in keys.values():
        of_table[:3] = np.array([0, -(2**63), 2**63 - 1])[: len(of_table)]
    return keys


class Rank:
    """One that trains, with passes of so many batches; 0 announces nothing."""

    def __init__(self, engine: Engine, rank: int, length: int, choices: UpdateChoices) -> None:
        self.engine, self.rank, self.length = engine, rank, length
        self.update = engine.open_update("sgd", TABLES, choices)
        self.seen: list[np.ndarray] = []
        self._passes: list[passes.Pass] = []

    def begin(self, step: int) -> None:
        """Announces the pass after the one that a step begins, and opens that one."""
        if self.length == 0:
            return
        if step == 0:
            self._announce(0)
        if step % self.length == 0:
            self._announce(step + self.length)
            if step > 0:
                self._passes[step // self.length - 1].end()
        self._passes[step // self.length].begin(step % self.length)

    def look_up(self, step: int) -> None:
        """Looks a batch up, and posts gradients that follow from what was found."""
        keys = keys_of(step, self.rank)
        rows = [self.engine.lookup(name, dim, keys[name]) for name, dim in TABLES.items()]
        self.seen += rows
        random = np.random.default_rng([7, step, self.rank])
        self.gradients = [
            (some + random.normal(size=some.shape)).astype(np.float32) for some in rows
        ]

    def post(self, step: int) -> None:
        """Posts the gradients of the batch."""
        keys = list(keys_of(step, self.rank).values())
        self.update.post(keys, self.gradients, [0.1] * 2, samples=len(keys[0]))

    def evaluate(self) -> None:
        """Looks up what nobody has announced."""
        self.seen += [self.engine.lookup(name, dim, EVERYWHERE) for name, dim in TABLES.items()]

    def _announce(self, first: int) -> None:
        batches = [keys_of(step, self.rank) for step in range(first, min(first + self.length, STEPS))]
        if batches:
            self._passes.append(passes.announce(self.engine, batches))


def trained(
    directory: Path,
    ranks: Sequence[int],
    length: int,
    case: Case,
    cache_bytes: int = 0,
) -> tuple[list[np.ndarray], list[passes.PassStats]]:
    """What every rank has seen on the way and sees at the end, and what its passes did."""
    with Hosts(directory, ranks, TABLES, case.optimizer, case.policy, cache_bytes) as engines:
        choices = UpdateChoices(clipping=case.clipping, clip_limit=0.5)
        at_work = [Rank(engine, rank, length, choices) for rank, engine in enumerate(engines)]
        for step in range(STEPS):
            for rank in at_work:
                rank.begin(step)
                rank.look_up(step)
                if step % 4 == 1:
                    rank.evaluate()
            for rank in reversed(at_work):
                rank.post(step)
        for rank in at_work:
            rank.evaluate()
        seen = [rows for rank in at_work for rows in rank.seen]
        return seen, [passes.stats(engine) for engine in engines]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What was found without passes; by what was asked for."""
    found: dict = {}

    def find(hosts: int, case: str) -> list[np.ndarray]:
        if (hosts, case) not in found:
            directory = tmp_path_factory.mktemp("without")
            found[hosts, case], _ = trained(directory, range(hosts), 0, CASES[case])
        return found[hosts, case]

    return find


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [1, 3, 7])
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_a_pass_changes_no_bit(
    shm_directory: Path, without, hosts: int, length: int, case: str
) -> None:
    seen, stats = trained(shm_directory, range(hosts), length, CASES[case])
    for rows, wanted in zip(seen, without(hosts, case), strict=True):
        np.testing.assert_array_equal(rows, wanted)
    for of_rank in stats:
        assert (of_rank.hits > 0) == (hosts > 1)
        # Each row comes once for a pass, or is there from the one before.
        assert of_rank.fetched == of_rank.asked
