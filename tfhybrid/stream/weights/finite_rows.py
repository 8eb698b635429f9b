"""The first row that is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np


def first_not_finite(keys: np.ndarray, rows: np.ndarray) -> tuple[int, Any] | None:
    """Returns the key and the values of the first row that is not finite; `None` if there is none.

    Args:
        keys: Keys of the rows, int64 `[n]`.
        rows: Values of each row, float32 `[n, ...]`.

    Example:

    >>> first_not_finite(np.array([7, 8]), np.array([[1.0], [np.inf]]))
    (8, array([inf]))
    """
    finite = np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    if finite.all():
        return None
    row = int(np.argmin(finite))
    return int(keys[row]), rows[row]
