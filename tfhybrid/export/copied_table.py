"""Interface of a table that can be exported: one in training, or one of a publication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from tfhybrid.core.row_block import RowBlock


class CopiedTable(Protocol):
    """Interface of a table to export: a `Table`, or the table of a reader of publications."""

    @property
    def name(self) -> str:
        """Name of the table; determines the initial values, with the seed."""

    @property
    def dim(self) -> int:
        """Number of floats in an embedding."""

    @property
    def config(self) -> Any:
        """Configuration of the table, such as a `TableConfig`. Only its `initializer` is read."""

    @property
    def seed(self) -> int:
        """Seed of the initial values."""

    @property
    def unseen(self) -> str:
        """Embedding of keys without a row outside of training: `"zeros"` or `"initial"`."""

    @property
    def decay(self) -> float:
        """Factor by which the initial values of keys without a row have decayed."""

    def blocks(self) -> Iterator[RowBlock]:
        """Yields all rows in blocks. No row may change meanwhile."""

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        """Returns the embeddings of keys, the initial values of keys without a row.

        Args:
            keys: Keys, int64, any shape.

        Returns:
            float32 `keys.shape + (dim,)`.

        Raises:
            StoreError: The store is closed.
        """
