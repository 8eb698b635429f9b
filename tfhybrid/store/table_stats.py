"""What a table tells of itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from tfhybrid.errors import ConfigError

# What quantiles are taken of, where a table has more rows.
_BLOCKS, _BLOCK_ROWS = 64, 16384


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSize:
    """What a table holds, on this host. Bytes are as reserved in shared memory.

    Args:
        rows: Rows in the table.
        version: Updates applied.
        chunks: Blocks of rows that it consists of.
        index_slots: Room of the index, in keys.
        embedding_bytes: Keys and embeddings.
        state_bytes: State of the optimizer.
        history_bytes: What is known of each row's past, where rows are admitted or evicted.
        index_bytes: The index.
        bytes: All of it.
        file_bytes: Rows in files on a disk. This and the rest are 0 for a table in memory.
        cache_bytes: Their cache in shared memory, part of `bytes`.
        cache_hits: Rows that updates found in the cache, since the table was made or cleared.
        cache_misses: Rows that they read from the files.
        written_rows: Rows that were written to the files.
    """

    rows: int
    version: int
    chunks: int
    index_slots: int
    embedding_bytes: int
    state_bytes: int
    history_bytes: int
    index_bytes: int
    bytes: int
    file_bytes: int
    cache_bytes: int
    cache_hits: int
    cache_misses: int
    written_rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableStats(TableSize):
    """What a table tells of itself; the rest is as of `TableSize`.

    Args:
        waiting: Keys that wait for admission.
        waiting_bytes: Their counters; not part of `bytes`.
        device_bytes: The variable on this rank's device, with `fast_tier="device"`; not part of
            `bytes`.
        new_rows: Rows created since this process last called `stats`.
        evicted_rows: Rows evicted since then.
        unique_ratio: Of the keys of this rank's gradients since then, the share that was left when
            equal ones of a step had been summed; NaN where there were none.
        nan_rows: Rows whose embedding holds a NaN; `None` where it was not asked for.
        norm_quantiles: Euclidean norms of embeddings by quantile; NaN in a table without rows.
    """

    waiting: int
    waiting_bytes: int
    device_bytes: int
    new_rows: int
    evicted_rows: int
    unique_ratio: float
    nan_rows: int | None
    norm_quantiles: dict[float, float]

    @property
    def load_factor(self) -> float:
        """Share of the index's slots that are taken."""
        return self.rows / self.index_slots if self.index_slots else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnerShare:
    """What a host owns of a table.

    Args:
        host: Its number in the job, from 0.
        rows: Rows in its share.
        bytes: What they take in its shared memory.
    """

    host: int
    rows: int
    bytes: int


def quantiles_of_norms(
    rows: int, read: Callable[[int, int], np.ndarray], quantiles: Sequence[float]
) -> dict[float, float]:
    """Returns quantiles of the Euclidean norms of rows, finite ones alone.

    Args:
        rows: In the table; where they are more than a million, blocks that are spread evenly count.
        read: Returns the embeddings of rows, from the number of the first and how many.
        quantiles: From 0 to 1.

    Raises:
        ConfigError: A quantile is not.
    """
    if not all(0 <= quantile <= 1 for quantile in quantiles):
        raise ConfigError(f"Quantiles lie from 0 to 1. Received: norm_quantiles={quantiles!r}")
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
