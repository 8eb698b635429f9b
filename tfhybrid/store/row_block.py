"""Rows as they are read and written, a block at a time."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Rows in creation order: keys `[n]`, embeddings `[n, dim]`, states `[n, slots, dim]`."""

    keys: np.ndarray
    embeddings: np.ndarray
    states: np.ndarray | None
