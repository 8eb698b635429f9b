"""Training on rows that lack updates, in plain NumPy and float32: a log of reads, replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tfhybrid.core import native

Features = Mapping[str, np.ndarray]
# The versions of the rows that a trainer read: by table and owner.
Versions = Mapping[tuple[str, int], int]


class StaleTable:
    """A table under Adagrad of which every version is kept.

    Args:
        name: Of the table.
        dim: Of its rows.
        initializer: Kind and numbers of its initial values.
        seed: Of the job.
        rate: The learning rate.
        adagrad: Initial accumulator value and epsilon.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        initializer: tuple[int, float, float],
        seed: int,
        rate: float,
        adagrad: tuple[float, float],
    ) -> None:
        self._initializer = initializer
        self._seed = native.table_seed(seed, name)
        self._dim = dim
        self._rate = np.float32(rate)
        self._start, self._epsilon = map(np.float32, adagrad)
        self._squares: dict[int, np.ndarray] = {}
        self._versions: list[dict[int, np.ndarray]] = [{}]  # what each changed

    @property
    def version(self) -> int:
        """Updates applied."""
        return len(self._versions) - 1

    def lookup(self, keys: np.ndarray, version: int) -> np.ndarray:
        """Returns the rows that keys had when so many updates were applied."""
        rows = native.initial_rows(
            *self._initializer, self._seed, np.ascontiguousarray(keys), self._dim
        )
        for row, key in zip(rows, keys.tolist(), strict=True):
            for changed in reversed(self._versions[: version + 1]):
                if key in changed:
                    row[:] = changed[key]
                    break
        return rows

    def update(self, ranks: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Applies keys and gradients of each rank, divided by the ranks that have a key."""
        sums: dict[int, list[np.ndarray]] = {}
        for keys, gradients in ranks:
            of_rank: dict[int, np.ndarray] = {}
            for key, gradient in zip(keys.tolist(), gradients, strict=True):
                of_rank[key] = of_rank[key] + gradient if key in of_rank else gradient
            for key, gradient in of_rank.items():
                sums.setdefault(key, []).append(gradient)
        changed = {}
        for key, parts in sums.items():
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            before = self.lookup(np.array([key], np.int64), self.version)[0]
            changed[key] = before - self._step(key, total * np.float32(1 / len(parts)))
        self._versions.append(changed)

    def _step(self, key: int, gradient: np.ndarray) -> np.ndarray:
        start = np.full_like(gradient, self._start)
        squares = self._squares.get(key, start) + gradient * gradient
        self._squares[key] = squares
        return self._rate * gradient / np.sqrt(squares + self._epsilon)


def rows_as_read(
    table: StaleTable, keys: np.ndarray, owners: np.ndarray, versions: Mapping[int, int]
) -> np.ndarray:
    """Returns the rows of a batch, each at the version that was read from its owner."""
    rows = np.empty((len(keys), table.lookup(keys[:0], 0).shape[1]), np.float32)
    for owner in np.unique(owners):
        here = owners == owner
        rows[here] = table.lookup(keys[here], versions[int(owner)])
    return rows


def replay(
    tables: Mapping[str, StaleTable],
    steps: Sequence[Sequence[tuple[Features, np.ndarray, Versions]]],
    keys_of: Callable[[Features], Sequence[np.ndarray]],
    owners_of: Callable[[str, np.ndarray], np.ndarray],
    gradients_of: Callable[[Sequence[np.ndarray], Features, np.ndarray], Sequence[np.ndarray]],
) -> None:
    """Trains the tables on the rows that a log says were read.

    Args:
        tables: By name, untrained.
        steps: Of each step and rank: features, labels, and the versions that were read.
        keys_of: The keys of each table in features.
        owners_of: The owners of a table's keys.
        gradients_of: Of rows, features and labels: the gradient of each row.
    """
    for ranks in steps:
        posted: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in tables]
        for features, labels, versions in ranks:
            keys = keys_of(features)
            rows = []
            for (name, table), of_table in zip(tables.items(), keys, strict=True):
                read = {owner: at for (its, owner), at in versions.items() if its == name}
                rows.append(rows_as_read(table, of_table, owners_of(name, of_table), read))
            gradients = gradients_of(rows, features, labels)
            for to, its_keys, its in zip(posted, keys, gradients, strict=True):
                to.append((its_keys, its))
        for table, of_ranks in zip(tables.values(), posted, strict=True):
            table.update(of_ranks)
