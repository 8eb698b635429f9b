"""Export to a SavedModel that stock TensorFlow loads."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.errors import ConfigError, ExportError, TfhybridError
from tfhybrid.export import streamed, versions
from tfhybrid.export.serving_model import ServingModel
from tfhybrid.export.signature import Signature
from tfhybrid.export.sorted_keys import SortedKeys
from tfhybrid.export.stock_table import StockTable
from tfhybrid.store import Table

_log = logging.getLogger("tfhybrid.export")

_UNSEEN = ("initial", "zeros", None)


@distributed.call("export.saved_model")
def saved_model(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    unseen: str | None = None,
    min_norm: float = 0.0,
    inputs: Any = None,
) -> Path:
    """Writes a model as a SavedModel of built-in operations; every rank must call it.

    It loads without tfhybrid and predicts as `model.predict` does. Keys and embeddings are
    variables in its variables files. Rank 0 writes, and reads tables a block at a time, so they may
    be larger than its memory. The folder appears at once, complete. No step may run meanwhile.

    Args:
        model: Model, built; it need not be compiled. A table of 2^31 rows or more is refused.
        path: Folder of this model's versions, which TensorFlow Serving calls its base path: a local
            or mounted folder, created if it does not exist.
        version: Number of this version, at least 0, which must be new. Default: `None`, the highest
            number plus one, 1 for the first.
        unseen: Embedding of a key without a row: `"zeros"`, or `"initial"`, its initial value as in
            training. Default: `None`, as in `model.predict`: `Table.unseen` of each table.
        min_norm: Minimum Euclidean norm of an embedding. Rows below it are left out; their keys are
            then unseen. Default 0, all rows. Rows cannot be chosen by frequency, which is not
            stored.
        inputs: Inputs of a subclassed model: a dict of `tf.TensorSpec` by name, or one or a list of
            them with names. Default: `None`, for a functional model, which defines its inputs.

    Returns:
        The folder, `path/version`. Its signature "serving_default" takes the model's inputs by
        name, with any batch size, and returns a dict: "output_0" (and so on), or the names of a
        model that returns a dict.

    Raises:
        ConfigError: An argument is invalid, `path` is an address such as `gs://`, or the model's
            inputs are unknown.
        ExportError: On all ranks: stock TensorFlow cannot run the model, or writing failed. No
            folder appeared.

    Example:

    ```python
    folder = tfhybrid.export.saved_model(model, "exported/click_model")
    ```
    """
    _check(version, unseen, min_norm)
    directory = versions.local_folder(path)
    signature = Signature(model, inputs)
    tables = tables_of(model)

    def write() -> Path | None:
        if distributed.rank() > 0:
            return None
        folder = versions.choose(directory, version)
        started = time.monotonic()
        with storage.appearing(folder) as unfinished, contextlib.ExitStack() as open_files:

            def sorted_keys(table: Table) -> SortedKeys:
                keys = SortedKeys(table, min_norm=min_norm, directory=unfinished)
                return open_files.enter_context(keys)

            exported = {
                name: StockTable(table, sorted_keys(table), mark=mark, unseen=unseen)
                for mark, (name, table) in enumerate(tables.items())
            }
            module = ServingModel(model, exported, signature)
            signatures = {"serving_default": module.prediction}
            streamed.save(module, unfinished, signatures, dict(enumerate(exported.values())))
        _report(folder, exported, tables, time.monotonic() - started)
        return folder

    try:
        folder = distributed.together(write)
    except (TfhybridError, OSError, tf.errors.OpError) as error:
        raise ExportError(f"'{model.name}' could not be exported to {path}. {error}") from error
    # TensorFlow raises an AssertionError if a resource cannot be saved.
    except AssertionError as error:
        raise ExportError(
            f"'{model.name}' could not be exported to {path}. It uses a lookup table or another "
            "resource of TensorFlow that is no attribute of a layer: assign it to one, or to a "
            f"list or dict there. {error}"
        ) from error
    return distributed.broadcast_object(folder)


def _check(version: Any, unseen: Any, min_norm: Any) -> None:
    if version is not None and (not isinstance(version, int) or version < 0):
        raise ConfigError(
            f"version must be a whole number, at least 0. Received: version={version!r}"
        )
    if unseen not in _UNSEEN:
        raise ConfigError(f"unseen must be one of {_UNSEEN}. Received: unseen={unseen!r}")
    if not min_norm >= 0:
        raise ConfigError(f"min_norm must be a number, at least 0. Received: min_norm={min_norm!r}")


def _report(
    folder: Path, exported: dict[str, StockTable], tables: dict[str, Table], seconds: float
) -> None:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    _log.info(
        "Exported %s: %d tables, %d of %d rows, %.1f MB, written in %.1f s",
        folder,
        len(tables),
        sum(table.rows for table in exported.values()),
        sum(table.all_rows for table in tables.values()),
        size / 1e6,
        seconds,
    )
