"""How many different ids there are, in bounded memory: exact first, then estimated."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tfhybrid.data.ragged import Ragged

EXACT_IDS = 1 << 20  # 8 MB a table
_REGISTERS_LOG2 = 16  # 64 KB a table, and an error of 0.4 % (one standard deviation)
_DEVIATIONS = 2  # of the bounds: 95 %


@dataclasses.dataclass(frozen=True)
class Count:
    """A number of ids, and bounds that hold in 95 of 100 cases; three times the same if exact."""

    ids: int
    least: int
    most: int

    @property
    def exact(self) -> bool:
        """Whether they were counted, not estimated."""
        return self.least == self.most


class DistinctIds:
    """Counts the different ids of a table: a set at first, a HyperLogLog sketch from then on.

    Args:
        exact_ids: So many are counted exactly.

    Example:

    >>> ids = DistinctIds()
    >>> for keys in ([3, 1, 3], [1, 2]):
    ...     ids.add(np.array(keys))
    >>> ids.count()
    Count(ids=3, least=3, most=3)
    """

    def __init__(self, exact_ids: int = EXACT_IDS) -> None:
        self._exact_ids = exact_ids
        self._ids: np.ndarray = np.empty(0, np.int64)
        self._sketch: Any = None

    def add(self, keys: np.ndarray | Ragged) -> None:
        """Takes the ids of some samples, int64 of any shape."""
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
        """Returns how many different ids came."""
        if self._sketch is None:
            return Count(*[len(self._ids)] * 3)
        return Count(
            round(self._sketch.get_estimate()),
            round(self._sketch.get_lower_bound(_DEVIATIONS)),
            round(self._sketch.get_upper_bound(_DEVIATIONS)),
        )
