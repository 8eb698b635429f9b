"""What an export copies: a table that is trained, or one of a publication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from tfhybrid.core.row_block import RowBlock


class CopiedTable(Protocol):
    """What is copied: a `Table`, or the rows that a reader of publications has."""

    @property
    def name(self) -> str:
        """As of `Table`."""

    @property
    def dim(self) -> int:
        """As of `Table`."""

    @property
    def config(self) -> Any:
        """As of `Table`; of it the initializer alone."""

    @property
    def seed(self) -> int:
        """As of `Table`."""

    @property
    def decay(self) -> float:
        """As of `Table`."""

    def blocks(self) -> Iterator[RowBlock]:
        """As of `Table`."""

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        """As of `Table`."""
