"""Statistics of tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from tfhybrid.errors import ConfigError
from tfhybrid.monitoring.report import TableSize

# Sample size for quantiles if a table has more rows.
_BLOCKS, _BLOCK_ROWS = 64, 16384


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableStats(TableSize):
    """Statistics of a table; see `TableSize` for the other fields.

    Args:
        waiting: Number of keys that wait for admission.
        waiting_bytes: Bytes of the waiting keys' counters; not part of `bytes`.
        new_rows: Number of rows created since this process last called `stats`.
        evicted_rows: Number of rows evicted since then.
        unique_ratio: Distinct keys per step divided by all keys of this rank's gradients, since
            then; NaN without gradients.
        nan_rows: Number of rows whose embedding has a NaN; `None` if not requested.
        norm_quantiles: Euclidean norms of embeddings by quantile; NaN in a table without rows.
    """

    waiting: int
    waiting_bytes: int
    new_rows: int
    evicted_rows: int
    unique_ratio: float
    nan_rows: int | None
    norm_quantiles: dict[float, float]

    @property
    def load_factor(self) -> float:
        """Fraction of the index's slots that are in use."""
        return self.rows / self.index_slots if self.index_slots else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardSize:
    """A host's part of a table.

    Args:
        host: Number of the host in the job, from 0. Embedding nodes are numbered after the hosts.
        rows: Number of rows on the host.
        bytes: Shared memory of the part, with index, optimizer states and reserved space.
    """

    host: int
    rows: int
    bytes: int


def quantiles_of_norms(
    rows: int, read: Callable[[int, int], np.ndarray], quantiles: Sequence[float]
) -> dict[float, float]:
    """Returns quantiles of the finite Euclidean norms of rows.

    Args:
        rows: Number of rows in the table. Of more than a million rows, only evenly spread blocks
            are read.
        read: Function of (number of the first row, number of rows) that returns embeddings.
        quantiles: Quantiles to return, from 0 to 1.

    Returns:
        Norms by quantile; NaN if no row has a finite norm.

    Raises:
        ConfigError: A quantile is out of range.
    """
    if not all(0 <= quantile <= 1 for quantile in quantiles):
        raise ConfigError(f"Quantiles must be from 0 to 1. Received: norm_quantiles={quantiles!r}")
    if not quantiles:
        return {}
    firsts = range(0, rows, _BLOCK_ROWS)
    blocks = [
        read(first, min(_BLOCK_ROWS, rows - first))
        for first in firsts[:: max(1, math.ceil(len(firsts) / _BLOCKS))]
    ]
    norms = np.concatenate([np.empty(0), *(np.linalg.norm(block, axis=1) for block in blocks)])
    norms = norms[np.isfinite(norms)]
    if not len(norms):
        return dict.fromkeys(quantiles, math.nan)
    return dict(zip(quantiles, map(float, np.quantile(norms, quantiles)), strict=True))
