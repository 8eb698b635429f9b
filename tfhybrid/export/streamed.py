"""A module with tables as a SavedModel, without a whole table in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfhybrid.export.stock_table import StockTable
from tfhybrid.export.variable_files import VariableFiles

# A file has so many bytes, or more, so that there are not too many files. A process that loads the
# model has all of them open, and often may open 1,024 files.
_PIECE_BYTES = 32 << 20
_MOST_PIECES = 256

_KEYS, _VECTORS = (f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in ("keys", "vectors"))


def save(
    module: tf.Module, folder: Path, signatures: Any, tables: Mapping[int, StockTable]
) -> None:
    """Saves a module as `tf.saved_model.save` does, with all rows of its tables.

    Args:
        module: Has each of the tables as an attribute, or in one.
        folder: Exists, and receives the SavedModel.
        signatures: As `tf.saved_model.save` takes them.
        tables: By mark.

    Example:

    ```python
    streamed.save(module, folder, {"serving_default": module.prediction}, {0: table})
    ```
    """
    tf.saved_model.save(module, str(folder), signatures)
    places = _places_of(folder, tables)
    piece_bytes = max(_PIECE_BYTES, sum(table.bytes for table in tables.values()) // _MOST_PIECES)
    names = [place + name for place in places.values() for name in (_KEYS, _VECTORS)]
    with VariableFiles(folder, names, piece_bytes) as files:
        for mark, table in tables.items():
            place = places[mark]
            for rows in table.slices():
                files.add(place + _KEYS, (table.rows,), rows.first, rows.keys)
                files.add(place + _VECTORS, (table.rows, table.dim), rows.first, rows.vectors)


def _places_of(folder: Path, tables: Mapping[int, StockTable]) -> dict[int, str]:
    """Returns what the checkpoint's names of each table begin with, by mark."""
    saved = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    names = saved.get_variable_to_shape_map()
    # How TensorFlow spells a name in a path is its own affair; values tell what belongs to what.
    places = {
        int(saved.get_tensor(name)[0]): name.removesuffix(_KEYS)
        for name in names
        if name.endswith(f"/{_KEYS}") and name.removesuffix(_KEYS) + _VECTORS in names
    }
    assert places.keys() == tables.keys()
    return places
