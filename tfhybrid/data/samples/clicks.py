"""Tables of samples in memory, which readers return and from which batches are cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.data.samples.sharding import Shard
from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True, eq=False)
class Clicks:
    """A table of samples of a click model, column by column.

    Args:
        features: Keys of each feature: int64 `[n]`, `[n, length]` if every sample has the same
            number of keys, or `Ragged`.
        label: Labels `[n]`: float32, 1 for a click and 0 for none, or any numbers; int64 for
            classes; or a dict of several such columns by name.
        dense: Numeric columns: float32 `[n]` or `[n, width]`. Defaults to none.

    Raises:
        ConfigError: The columns differ in length, have a wrong dtype, or have the same name.

    Example:

    >>> import numpy as np
    >>> clicks = Clicks({"user": np.array([7, 8, 9])}, np.array([1, 0, 1], np.float32))
    >>> len(clicks)
    3
    >>> clicks.take([2, 0]).features["user"]
    array([9, 7])
    """

    features: dict[str, np.ndarray | Ragged]
    label: np.ndarray | dict[str, np.ndarray]
    dense: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, label in self.labels.items():
            dtype = np.int64 if label.dtype == np.int64 else np.float32
            _check_column(name, label, dtype, (1,), len(self))
        for name, column in self.features.items():
            _check_column(name, column, np.int64, (1, 2), len(self))
        for name, column in self.dense.items():
            _check_column(name, column, np.float32, (1, 2), len(self))
        if both := self.features.keys() & self.dense.keys():
            raise ConfigError(
                f"A column must be a feature or dense, not both. Received: {sorted(both)} in both."
            )

    def __len__(self) -> int:
        return len(next(iter(self.labels.values())))

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """Label arrays `[n]` by name; an array without a name is called `"label"`."""
        return self.label if isinstance(self.label, dict) else {"label": self.label}

    def take(self, samples: slice | np.ndarray | Sequence[int]) -> Clicks:
        """Returns the samples at these positions, in this order. A slice is not copied."""
        return Clicks(
            {name: column[samples] for name, column in self.features.items()},
            self._with_labels({name: column[samples] for name, column in self.labels.items()}),
            {name: column[samples] for name, column in self.dense.items()},
        )

    def shard(self, rank: int, size: int) -> Clicks:
        """Returns the `rank`-th of `size` contiguous parts whose lengths differ by at most one.

        Args:
            rank: Number of the part, from 0.
            size: Number of parts.

        Raises:
            ConfigError: `rank` is not in `[0, size)`.
        """
        return self.take(Shard(rank, size).part(0, len(self)))

    def _with_labels(self, labels: dict[str, np.ndarray]) -> np.ndarray | dict[str, np.ndarray]:
        return labels if isinstance(self.label, dict) else labels["label"]

    @staticmethod
    def concatenate(tables: Sequence[Clicks]) -> Clicks:
        """Returns one table with the samples of all tables, of which there is at least one.

        Raises:
            KeyError: A table lacks a column of the first one. Columns that the first one lacks are
                left out.
        """
        first = tables[0]
        return Clicks(
            {name: _concatenated([t.features[name] for t in tables]) for name in first.features},
            first._with_labels(
                {name: np.concatenate([t.labels[name] for t in tables]) for name in first.labels}
            ),
            {name: np.concatenate([t.dense[name] for t in tables]) for name in first.dense},
        )


def _concatenated(columns: list[np.ndarray | Ragged]) -> np.ndarray | Ragged:
    ragged = [column for column in columns if isinstance(column, Ragged)]
    return Ragged.concatenate(ragged) if ragged else np.concatenate(columns)  # type: ignore[arg-type]


def _check_column(
    name: str,
    column: np.ndarray | Ragged,
    dtype: type[np.generic],
    ranks: tuple[int, ...],
    length: int,
) -> None:
    if isinstance(column, Ragged):
        if len(column) != length:
            raise ConfigError(
                f"Column {name!r} must have n = {length} samples. Received: {len(column)}."
            )
        return
    if column.dtype != dtype or column.ndim not in ranks or len(column) != length:
        shapes = " or ".join(["[n]", "[n, length]"][rank - 1] for rank in ranks)
        raise ConfigError(
            f"Column {name!r} must be {dtype.__name__} of shape {shapes} with n = {length}. "
            f"Received: {column.dtype} {list(column.shape)}."
        )
