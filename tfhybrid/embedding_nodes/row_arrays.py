"""Conversion of rows to the arrays of a message, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.row_block import RowBlock


def arrays_of(block: RowBlock) -> dict[str, np.ndarray]:
    """Returns the arrays by which a message between nodes carries rows.

    The history of a row (frequency and last use of its key, for eviction) is sent as bytes.

    Args:
        block: Rows; without states or history, their arrays are left out.
    """
    arrays = {"keys": block.keys, "embeddings": block.embeddings}
    if block.states is not None:
        arrays["states"] = block.states
    if block.history is not None:
        history = np.ascontiguousarray(block.history)
        arrays["history"] = history.view(np.uint8).reshape(len(history), -1)
    return arrays


def block_of(arrays: Mapping[str, np.ndarray]) -> RowBlock:
    """Returns the rows from which `arrays_of` made arrays.

    Args:
        arrays: Arrays of the message, by name.

    Raises:
        KeyError: Keys or embeddings are missing.
        ValueError: The bytes are not histories of rows.
    """
    history = arrays.get("history")
    if history is not None:
        history = np.ascontiguousarray(history).reshape(-1).view(native.HISTORY)
    return RowBlock(arrays["keys"], arrays["embeddings"], arrays.get("states"), history)
