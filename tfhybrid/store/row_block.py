"""Rows as they are read and written, a block at a time."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Rows: keys `[n]`, embeddings `[n, dim]`, states `[n, slots, dim]`, history `[n]`.

    The history is of `native.HISTORY`: frequency, step and event time of the last update.
    """

    keys: np.ndarray
    embeddings: np.ndarray
    states: np.ndarray | None
    history: np.ndarray | None = None
