"""Blocks of rows for reading and writing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """A block of rows.

    Args:
        keys: int64 `[n]`.
        embeddings: float32 `[n, dim]`.
        states: Optimizer state, float32 `[n, slots, dim]`; `None` if the rows have none.
        history: `native.HISTORY` `[n]`: frequency, and step and event time of the last update.
            `None` if the rows have none.
    """

    keys: np.ndarray
    embeddings: np.ndarray
    states: np.ndarray | None
    history: np.ndarray | None = None

    def where(self, chosen: np.ndarray) -> RowBlock:
        """Returns some of the rows, in order.

        Args:
            chosen: Whether to take each row, bool `[n]`.
        """
        return RowBlock(
            self.keys[chosen],
            self.embeddings[chosen],
            None if self.states is None else self.states[chosen],
            None if self.history is None else self.history[chosen],
        )


class RowSource(Protocol):
    """A source of rows; `tfhybrid.checkpoint` has several.

    Attributes:
        path: Name of the source in error messages.
    """

    path: Path | str

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields all rows of a table, block by block.

        Args:
            dim: Length of an embedding.
            state_shape: Shape of a row's optimizer state.

        Raises:
            DataError: The source is damaged, or does not fit the table.
        """
        ...
