"""Writer of a SavedModel with tables that never has a whole table in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfhybrid.export.stock_table import StockTable
from tfhybrid.export.variable_files import VariableFiles

# Minimum size and maximum number of the files. A process that loads the model opens all of them,
# and is often limited to 1,024 open files.
_PIECE_BYTES = 32 << 20
_MAX_PIECES = 256

_KEYS, _VECTORS = (f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in ("keys", "vectors"))


def save(
    module: tf.Module, folder: Path, signatures: Any, tables: Mapping[int, StockTable]
) -> None:
    """Saves a module as `tf.saved_model.save` does, with all rows of its tables.

    Args:
        module: Module to save. It must hold each table in an attribute, or in a list there.
        folder: Existing folder for the SavedModel.
        signatures: Signatures, as for `tf.saved_model.save`.
        tables: Tables to save. The key of each is the `mark` with which that table was created.

    Raises:
        tf.errors.OpError: A file cannot be written.
        OSError: A folder cannot be made or removed.
        AssertionError: A resource of the module cannot be saved, or `module` does not hold a table.

    Example:

    ```python
    streamed.save(module, folder, {"serving_default": module.prediction}, {0: table})
    ```
    """
    tf.saved_model.save(module, str(folder), signatures)
    prefixes = _prefixes_of(folder, tables)
    piece_bytes = max(_PIECE_BYTES, sum(table.bytes for table in tables.values()) // _MAX_PIECES)
    names = [prefix + name for prefix in prefixes.values() for name in (_KEYS, _VECTORS)]
    with VariableFiles(folder, names, piece_bytes) as files:
        for mark, table in tables.items():
            prefix = prefixes[mark]
            for rows in table.slices():
                files.add(prefix + _KEYS, (table.rows,), rows.first, rows.keys)
                files.add(prefix + _VECTORS, (table.rows, table.dim), rows.first, rows.vectors)


def _prefixes_of(folder: Path, tables: Mapping[int, StockTable]) -> dict[int, str]:
    """Returns the prefix of each table's variables in the checkpoint, by mark."""
    saved = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    names = saved.get_variable_to_shape_map()
    # TensorFlow does not document how it spells the names, so a table is found by its mark.
    prefixes = {
        int(saved.get_tensor(name)[0]): name.removesuffix(_KEYS)
        for name in names
        if name.endswith(f"/{_KEYS}") and name.removesuffix(_KEYS) + _VECTORS in names
    }
    assert prefixes.keys() == tables.keys()
    return prefixes
