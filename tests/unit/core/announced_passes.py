"""Ranks of this process that train with announced passes, and the rows that they must find."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import tfhybrid
from tests.support.core.pass_trainers import ADAGRAD, ADAM, FTRL, TABLES, UNSEEN
from tests.support.core.sharded_hosts import Hosts
from tests.support.reference import training
from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerFlag, OptimizerKind
from tfhybrid.core.update import UpdateChoices
from tfhybrid.initializers import Uniform

Without = Callable[[int, str], list[np.ndarray]]
STEPS = 9
EVERYWHERE = np.arange(-60, 260)  # all keys of all batches but three


@dataclasses.dataclass(frozen=True)
class Case:
    """How tables are trained.

    Args:
        optimizer: Fields of `native.OptimizerConfigStruct`.
        clipping: Of `UpdateChoices`.
        policy: Fields of `native.RowPolicyStruct`.
    """

    optimizer: Mapping[str, float]
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

    steps = STEPS

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
        rows = self.rows_of(self.keys_of(step))
        self.seen += rows
        random = np.random.default_rng([7, step, self.rank])
        self.gradients = [
            (some + random.normal(size=some.shape)).astype(np.float32) for some in rows
        ]

    def post(self, step: int) -> None:
        """Posts the gradients of the batch."""
        keys = list(self.keys_of(step).values())
        self.update.post(keys, self.gradients, [0.1] * 2, samples=len(keys[0]))

    def evaluate(self) -> None:
        """Looks up what nobody has announced."""
        self.seen += self.rows_of(dict.fromkeys(TABLES, EVERYWHERE))

    def keys_of(self, step: int) -> dict[str, np.ndarray]:
        """Returns the keys of a batch."""
        return keys_of(step, self.rank)

    def rows_of(self, keys: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns what a lookup of those keys finds in each table."""
        return [self.engine.lookup(name, dim, keys[name]) for name, dim in TABLES.items()]

    def _announce(self, first: int) -> None:
        batches = [
            self.keys_of(step) for step in range(first, min(first + self.length, self.steps))
        ]
        if batches:
            self._passes.append(passes.announce(self.engine, batches))


def trained(
    directory: Path,
    ranks: Sequence[int],
    length: int,
    case: Case,
    cache_bytes: int = 0,
    kind: Callable[[Engine, int, int, UpdateChoices], Rank] = Rank,
) -> tuple[list[np.ndarray], list[passes.PassStats]]:
    """What every rank has seen on the way and sees at the end, and what its passes did.

    At the end of what was seen are the digests of the shards of all ranks' hosts.
    """
    with Hosts(directory, ranks, TABLES, case.optimizer, case.policy, cache_bytes) as engines:
        choices = UpdateChoices(clipping=case.clipping, clip_limit=0.5)
        at_work = [kind(engine, rank, length, choices) for rank, engine in enumerate(engines)]
        for step in range(at_work[0].steps):
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
        seen += [np.array([engine.digest(name) for name in TABLES]) for engine in engines]
        return seen, [passes.stats(engine) for engine in engines]


REFERENCES = {
    "adagrad": training.Adagrad(0.1),
    "adam": training.Adam(0.1),
    "ftrl": training.Ftrl(0.1, l1=0.01, l2=0.02),
    "clipped": training.Adam(0.1),
    "decay": training.Adam(0.1),
}


def check_reference(directory: Path, hosts: int, case: str, kind: type[Rank] = Rank) -> None:
    """Trains with passes of three batches; all that is looked up is what plain NumPy has then."""
    settings = CASES[case].optimizer
    tables = {
        name: training.Table(
            name,
            tfhybrid.TableConfig(dim, initializer=Uniform()),
            REFERENCES[case],
            weight_decay=settings.get("weight_decay", 0.0),
        )
        for name, dim in TABLES.items()
    }

    def check(rows: Sequence[np.ndarray], keys: Mapping[str, np.ndarray]) -> None:
        for found, (name, table) in zip(rows, tables.items(), strict=True):
            np.testing.assert_allclose(found, table.lookup(keys[name]), rtol=1e-4, atol=1e-5)

    choices = UpdateChoices(clipping=CASES[case].clipping, clip_limit=0.5)
    with Hosts(directory, range(hosts), TABLES, settings) as engines:
        ranks = [kind(engine, rank, 3, choices) for rank, engine in enumerate(engines)]
        for step in range(STEPS):
            batches = [keys_of(step, rank.rank) for rank in ranks]
            for rank, keys in zip(ranks, batches, strict=True):
                rank.begin(step)
                rank.look_up(step)
                check(rank.seen[-len(TABLES) :], keys)
            for number, (name, table) in enumerate(tables.items()):
                of_ranks = [
                    training.sum_by_key(keys[name], rank.gradients[number])
                    for rank, keys in zip(ranks, batches, strict=True)
                ]
                reduced = training.reduce(of_ranks, [len(k[name]) for k in batches], "frequency")
                if choices.clipping != "none":
                    training.clip(choices.clipping, choices.clip_limit, [[*reduced.values()]])
                table.update(reduced)
            for rank in ranks:
                rank.post(step)
        for rank in ranks:
            check(
                rank.rows_of(dict.fromkeys(TABLES, EVERYWHERE)), dict.fromkeys(TABLES, EVERYWHERE)
            )
