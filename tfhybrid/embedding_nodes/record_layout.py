"""Structured NumPy dtypes as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np


def layout_of(dtype: np.dtype) -> dict[str, Any]:
    """Returns a structured dtype as JSON can represent it, for `dtype_of`.

    Args:
        dtype: Dtype with named fields, at any offsets and with any padding.
    """
    fields = dict(dtype.fields or {})
    return {
        "names": list(fields),
        "formats": [[field[0].base.str, list(field[0].shape)] for field in fields.values()],
        "offsets": [field[1] for field in fields.values()],
        "itemsize": dtype.itemsize,
    }


def dtype_of(layout: dict[str, Any]) -> np.dtype:
    """Returns the dtype from which `layout_of` made a layout.

    Args:
        layout: `names`, `formats` and `offsets` of the fields, and `itemsize` in bytes.

    Raises:
        KeyError, TypeError, ValueError: It is not such a layout.
    """
    return np.dtype(
        {
            "names": layout["names"],
            "formats": [(base, tuple(shape)) for base, shape in layout["formats"]],
            "offsets": layout["offsets"],
            "itemsize": layout["itemsize"],
        }
    )
