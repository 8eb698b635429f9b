"""Counts of distinct ids in bounded memory: exact at first, then an estimate."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tfhybrid.data.samples.ragged import Ragged

EXACT_IDS = 1 << 20  # 8 MB per table
_REGISTERS_LOG2 = 16  # 64 KB per table; the standard error is 0.4 %
_DEVIATIONS = 2  # standard deviations of the 95 % bounds


@dataclasses.dataclass(frozen=True)
class Count:
    """A number of distinct ids.

    Attributes:
        ids: The number, or its estimate.
        least: Lower bound of the 95 % confidence interval; equal to `ids` if exact.
        most: Upper bound of the 95 % confidence interval; equal to `ids` if exact.
        exact: Whether `ids` was counted instead of estimated.
    """

    ids: int
    least: int
    most: int
    exact: bool


class DistinctIds:
    """Counter of distinct ids: an exact set at first, then a HyperLogLog sketch.

    Args:
        exact_ids: Maximum number of ids that are counted exactly.

    Example:

    >>> ids = DistinctIds()
    >>> for keys in ([3, 1, 3], [1, 2]):
    ...     ids.add(np.array(keys))
    >>> ids.count()
    Count(ids=3, least=3, most=3, exact=True)
    """

    def __init__(self, exact_ids: int = EXACT_IDS) -> None:
        self._exact_ids = exact_ids
        self._ids: np.ndarray = np.empty(0, np.int64)
        self._sketch: Any = None

    def add(self, keys: np.ndarray | Ragged) -> None:
        """Adds the ids of some samples, int64 of any shape."""
        new = np.unique(keys.values if isinstance(keys, Ragged) else keys)
        if self._sketch is None:
            new = self._ids = np.union1d(self._ids, new)
            if len(new) <= self._exact_ids:
                return
            from datasketches import hll_sketch, tgt_hll_type

            self._sketch = hll_sketch(_REGISTERS_LOG2, tgt_hll_type.HLL_8)
            self._ids = self._ids[:0]
        for key in new.tolist():
            self._sketch.update(key)

    def count(self) -> Count:
        """Returns the number of distinct ids so far."""
        if self._sketch is None:
            counted = len(self._ids)
            return Count(counted, counted, counted, exact=True)
        return Count(
            round(self._sketch.get_estimate()),
            round(self._sketch.get_lower_bound(_DEVIATIONS)),
            round(self._sketch.get_upper_bound(_DEVIATIONS)),
            exact=False,
        )
