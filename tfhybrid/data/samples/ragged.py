"""Columns of lists of keys, of any lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """The keys of a feature with any number of keys per sample, including none.

    Args:
        values: int64 `[m]`: the keys of all samples, concatenated.
        splits: int64 `[n + 1]`, non-decreasing from 0 to m: sample i has the keys
            `values[splits[i]:splits[i + 1]]`, as in `tf.RaggedTensor.from_row_splits`.

    Raises:
        ConfigError: A dtype or shape is wrong, or `splits` are invalid.

    Example:

    >>> import numpy as np
    >>> tags = Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3]))
    >>> tags[[2, 0]].tolist()
    [[9], [7, 8]]
    """

    values: np.ndarray
    splits: np.ndarray

    def __post_init__(self) -> None:
        for name, array in (("values", self.values), ("splits", self.splits)):
            if array.dtype != np.int64 or array.ndim != 1:
                raise ConfigError(
                    f"{name} must be int64 of one dimension. Received: {array.dtype} of shape "
                    f"{array.shape}."
                )
        splits = self.splits
        if len(splits) == 0 or splits[0] != 0 or np.any(np.diff(splits) < 0):
            raise ConfigError(f"splits must rise from 0. Received: {splits[:8]}...")
        if splits[-1] != len(self.values):
            raise ConfigError(
                f"splits must end at the number of values, {len(self.values)}. "
                f"Received: {splits[-1]}."
            )

    @property
    def lengths(self) -> np.ndarray:
        """Number of keys of each sample, int64 `[n]`."""
        return np.diff(self.splits)

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, samples: slice | np.ndarray | Sequence[int]) -> Ragged:
        """Returns these samples' lists, in this order. A slice without a step is not copied."""
        if isinstance(samples, slice):
            begin, end, step = samples.indices(len(self))
            if step == 1:
                splits = self.splits[begin : max(begin, end) + 1]
                return Ragged(self.values[splits[0] : splits[-1]], splits - splits[0])
            samples = np.arange(begin, end, step)
        chosen = np.asarray(samples, np.int64)
        starts, lengths = self.splits[:-1][chosen], self.lengths[chosen]
        splits = _splits_of(lengths)
        # Position j of the result is the (j - splits[i])-th key of its sample i.
        positions = np.arange(splits[-1]) + np.repeat(starts - splits[:-1], lengths)
        return Ragged(self.values[positions], splits)

    def tolist(self) -> list[list[int]]:
        """Returns the keys as one list per sample."""
        pairs = zip(self.splits[:-1], self.splits[1:], strict=True)
        return [self.values[begin:end].tolist() for begin, end in pairs]

    @staticmethod
    def from_lengths(values: np.ndarray, lengths: np.ndarray) -> Ragged:
        """Returns a column from the keys of all samples, concatenated, and their number per sample.

        Args:
            values: Keys, int64 `[m]`.
            lengths: Number of keys of each sample, `[n]`; the sum must be m.

        Raises:
            ConfigError: The lengths do not add up to the number of values, or the values are not
                int64.
        """
        return Ragged(values, _splits_of(lengths))

    @staticmethod
    def concatenate(columns: Sequence[Ragged]) -> Ragged:
        """Returns one column with the samples of all columns, of which there is at least one."""
        values = np.concatenate([column.values for column in columns])
        return Ragged.from_lengths(values, np.concatenate([column.lengths for column in columns]))


def _splits_of(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
