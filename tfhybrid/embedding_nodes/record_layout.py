"""A structured dtype of NumPy as JSON has it."""

from __future__ import annotations

from typing import Any

import numpy as np


def layout_of(dtype: np.dtype) -> dict[str, Any]:
    """Returns what `dtype_of` makes the dtype from again: fields, their places, and its bytes."""
    fields = dict(dtype.fields or {})
    return {
        "names": list(fields),
        "formats": [[field[0].base.str, list(field[0].shape)] for field in fields.values()],
        "offsets": [field[1] for field in fields.values()],
        "itemsize": dtype.itemsize,
    }


def dtype_of(layout: dict[str, Any]) -> np.dtype:
    """Returns the dtype of which `layout_of` told."""
    return np.dtype(
        {
            "names": layout["names"],
            "formats": [(base, tuple(shape)) for base, shape in layout["formats"]],
            "offsets": layout["offsets"],
            "itemsize": layout["itemsize"],
        }
    )
