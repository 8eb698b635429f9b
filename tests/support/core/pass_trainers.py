"""Ranks whose updates are of passes, in one process: engines below, NumPy above."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import tfhybrid
from tests.support.core.sharded_hosts import Hosts
from tests.support.reference import training
from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerKind
from tfhybrid.core.update import UpdateChoices
from tfhybrid.data.lookahead import Lookahead
from tfhybrid.initializers import Uniform

TABLES = {"item": 3, "user": 16}
RATE, DECAY, LIMIT = 0.1, 0.3, 0.5
EVERYWHERE = np.arange(-60, 350)
ADAGRAD = {"kind": OptimizerKind.ADAGRAD, "initial_accumulator_value": 0.1, "epsilon": 1e-7}
ADAM = {"kind": OptimizerKind.ADAM, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
FTRL = {"kind": OptimizerKind.FTRL, "initial_accumulator_value": 0.1, "l1": 0.01, "l2": 0.02}
UNSEEN: dict[str, float] = {"kind": 1, "admission": 1, "slices_log2": 3, "unseen_steps": 2}


@dataclasses.dataclass(frozen=True)
class Case:
    """How tables are trained.

    Args:
        optimizer: Fields of `native.OptimizerConfigStruct`.
        reference: The same in NumPy; `None` if it has none.
        clips: By the norm of each table's gradient.
        policy: Fields of `native.RowPolicyStruct`.
    """

    optimizer: Mapping[str, float]
    reference: training.Optimizer | None
    clips: bool = False
    policy: dict[str, float] | None = None


CASES = {
    "adam": Case(ADAM, training.Adam(RATE)),
    "ftrl": Case(FTRL, training.Ftrl(RATE, l1=0.01, l2=0.02)),
    "clipped": Case(ADAM, training.Adam(RATE), clips=True),
    "decay": Case({**ADAM, "weight_decay": DECAY}, training.Adam(RATE)),
    "evicted": Case(ADAGRAD, None, policy=UNSEEN),
}


def keys_of(step: int, rank: int) -> dict[str, np.ndarray]:
    """The keys of a batch, of which ranks have some in common; rank 1 has an empty one."""
    random = np.random.default_rng([step, rank])
    count = 0 if (step, rank) == (2, 1) else 40 + 7 * rank
    return {name: random.integers(-50, 50 + 20 * step, count) for name in TABLES}


def gradients_of(step: int, rank: int, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Gradients that follow from the rows that were found."""
    random = np.random.default_rng([7, step, rank])
    return [of_table + random.normal(size=of_table.shape) for of_table in rows]


class Rank:
    """One that sums the gradients of its batches; the boundary of its own passes.

    Args:
        engine: Of it.
        rank: Which it is.
        batches: How many it has.
        lookahead: Of its passes; with `None` it announces nothing.
        clips: As of `Case`.
    """

    longest = 4096

    def __init__(
        self, engine: Engine, rank: int, batches: int, lookahead: Lookahead | None, clips: bool
    ) -> None:
        self.engine, self.rank = engine, rank
        choices = UpdateChoices(clipping="norm" if clips else "none", clip_limit=LIMIT)
        self.update = engine.open_update("sgd", TABLES, choices)
        self.trained = self.waiting = self.offered = 0
        self.seen: list[np.ndarray] = []
        self._keys: list[dict[str, np.ndarray]] = []
        self._gradients: list[list[np.ndarray]] = []
        self._batches: Iterator[int] = iter(range(batches))
        if lookahead is not None:
            keys = lambda step: keys_of(step, rank)  # noqa: E731
            self._batches = lookahead.over(range(batches), keys, engine, self)

    def offer(self, batches: int) -> None:
        """Notes what could be trained."""
        self.offered = batches

    def next(self) -> int | None:
        """Returns the next batch, if there is one."""
        return next(self._batches, None)

    def train(self, step: int) -> None:
        """Looks a batch up and keeps its gradients."""
        keys = keys_of(step, self.rank)
        rows = [self.engine.lookup(name, dim, keys[name]) for name, dim in TABLES.items()]
        self.seen += rows
        self._keys.append(keys)
        self._gradients.append(gradients_of(step, self.rank, rows))
        self.trained += 1
        self.waiting += 1

    def post(self) -> None:
        """Posts the sums of all batches since the last time; nothing if there were none."""
        keys = [np.concatenate([b[name] for b in self._keys] or [[]]) for name in TABLES]
        gradients = [
            np.concatenate([b[t] for b in self._gradients] or [np.zeros((0, dim))])
            for t, dim in enumerate(TABLES.values())
        ]
        self.update.post(
            [of_table.astype(np.int64) for of_table in keys],
            [of_table.astype(np.float32) for of_table in gradients],
            [RATE] * 2,
            samples=len(self._keys),
        )
        self._keys, self._gradients, self.waiting = [], [], 0


@dataclasses.dataclass
class Outcome:
    """What came of a training.

    Args:
        lengths: Of the passes.
        seen: What every rank has seen on the way and sees at the end.
        at_end: What rank 0 sees at the end, by table.
        misses: Of all ranks.
    """

    lengths: list[int]
    seen: list[np.ndarray]
    at_end: dict[str, np.ndarray]
    misses: int


def trained(
    directory: Path,
    hosts: Sequence[int],
    case: Case,
    counts: Sequence[int],
    lookaheads: Sequence[Lookahead | None],
    lengths: Sequence[int] = (),
) -> Outcome:
    """Trains; the first rank whose pass ends ends it for all.

    Args:
        directory: Of the stores.
        hosts: The host of each rank.
        case: How.
        counts: Batches of each rank.
        lookaheads: Of each rank.
        lengths: Of the passes, where nothing is announced.
    """
    found = Outcome([], [], {}, 0)
    with Hosts(directory, hosts, TABLES, case.optimizer, case.policy) as engines:
        ranks = [
            Rank(engine, rank, counts[rank], lookaheads[rank], case.clips)
            for rank, engine in enumerate(engines)
        ]
        given = iter(lengths)
        while True:
            begun = [(rank, step) for rank in ranks if (step := rank.next()) is not None]
            if not begun:
                break
            length = next(given, 0) or min(rank.offered for rank, _ in begun)
            for batch in range(length):
                for rank, step in begun:
                    following = step if batch == 0 else rank.next()
                    if following is not None:
                        rank.train(following)
            for rank in reversed(ranks):
                rank.post()
            found.lengths.append(length)
        for rank in ranks:
            rank.seen += [rank.engine.lookup(n, dim, EVERYWHERE) for n, dim in TABLES.items()]
            found.seen += rank.seen
            found.misses += passes.stats(rank.engine).misses
        found.at_end = dict(zip(TABLES, ranks[0].seen[-len(TABLES) :], strict=True))
    return found


def reference(case: Case, counts: Sequence[int], lengths: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns the rows at the end by table, trained in plain NumPy and float64."""
    assert case.reference is not None
    decay = case.optimizer.get("weight_decay", 0.0)
    tables = {
        name: training.Table(
            name,
            tfhybrid.TableConfig(dim, initializer=Uniform()),
            case.reference,
            weight_decay=decay,
        )
        for name, dim in TABLES.items()
    }
    first = 0
    for length in lengths:
        sums: dict[str, list[dict[int, np.ndarray]]] = {name: [] for name in TABLES}
        for rank, count in enumerate(counts):
            steps = range(first, min(first + length, count))
            for name, of_rank in _gradients_of_pass(tables, rank, steps).items():
                sums[name].append(of_rank)
        for name, table in tables.items():
            reduced = training.reduce(sums[name], [1] * len(counts), "frequency")
            if case.clips:
                training.clip("norm", LIMIT, [list(reduced.values())])
            table.update(reduced)
        first += length
    return {name: table.lookup(EVERYWHERE) for name, table in tables.items()}


def _gradients_of_pass(
    tables: Mapping[str, training.Table], rank: int, steps: range
) -> dict[str, dict[int, np.ndarray]]:
    """Returns one rank's summed gradients of a pass: rows stay as they are meanwhile."""
    keys: dict[str, list[np.ndarray]] = {name: [] for name in tables}
    gradients: dict[str, list[np.ndarray]] = {name: [] for name in tables}
    for step in steps:
        of_batch = keys_of(step, rank)
        rows = [table.lookup(of_batch[name]) for name, table in tables.items()]
        for name, gradient in zip(tables, gradients_of(step, rank, rows), strict=True):
            keys[name].append(of_batch[name])
            gradients[name].append(gradient)
    return {
        name: training.sum_by_key(np.concatenate(keys[name]), np.concatenate(gradients[name]))
        if keys[name]
        else {}
        for name in tables
    }
