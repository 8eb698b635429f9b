"""Blocks of rows for reading and writing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Rows: keys `[n]`, embeddings `[n, dim]`, states `[n, slots, dim]`, history `[n]`.

    The dtype of the history is `native.HISTORY`: frequency, step and event time of the last update.
    """

    keys: np.ndarray
    embeddings: np.ndarray
    states: np.ndarray | None
    history: np.ndarray | None = None

    def where(self, chosen: np.ndarray) -> RowBlock:
        """Returns the rows for which `chosen`, bool `[n]`, is true."""
        return RowBlock(
            self.keys[chosen],
            self.embeddings[chosen],
            None if self.states is None else self.states[chosen],
            None if self.history is None else self.history[chosen],
        )


class RowSource(Protocol):
    """A source of rows; `tfhybrid.checkpoint` has several."""

    path: Path | str  # its name in error messages

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields the rows of a table of `dim` columns, whose state has that shape."""
        ...
