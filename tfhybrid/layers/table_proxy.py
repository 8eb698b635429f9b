"""The Keras variable that represents a table."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfhybrid._keras import IS_KERAS_3
from tfhybrid.errors import UnsupportedError
from tfhybrid.ops.lookup import TableRef
from tfhybrid.store import Table

# The variables of Keras 2 are those of TensorFlow, which has a name for their class only as the
# base of a public one.
_Variable: Any = keras.Variable if IS_KERAS_3 else tf.experimental.dtensor.DVariable.__base__


class TableProxy(_Variable):
    """An empty trainable variable, `[0, dim]`: the handle by which a table takes part in Keras.

    Gradients of a lookup reach the optimizer as the `tf.IndexedSlices` of this variable, TensorFlow
    orders lookups and updates by it, and freezing a layer freezes it. The rows are in shared
    memory. So everything that would copy "all weights" through variables is refused here: it would
    leave out the tables and mix two states of a model.

    Args:
        table: Table that the variable represents.
        trainable: Whether the table can be trained.
    """

    def __init__(self, table: Table, *, trainable: bool) -> None:
        # Mixed precision would read a cast copy, which has no handle and no gradient.
        options = {"autocast": False} if IS_KERAS_3 else {}
        # The kernels of all tables' ops are for the host, and TensorFlow runs an op where its
        # resources are; without this, that is a GPU if there is one.
        with tf.device("CPU:0"):
            super().__init__(
                np.zeros((0, table.dim), np.float32),
                name=table.name,
                trainable=trainable,
                **options,
            )
        self.table = table

    @property
    def table_ref(self) -> TableRef:
        """The table's handle for ops."""
        return TableRef(self.table.engine, self.table.name, self.table.dim, self.handle)

    def assign(self, value: Any, *options: Any, **named: Any) -> NoReturn:
        """Raises `UnsupportedError`, for `set_weights` and `restore_best_weights=True`."""
        raise self.refuse("set")

    def numpy(self) -> NoReturn:
        """Raises `UnsupportedError`, for `get_weights` and `restore_best_weights=True`."""
        raise self.refuse("copied")

    @property
    def overwrite_with_gradient(self) -> NoReturn:
        """Raises `UnsupportedError`: an optimizer of Keras 3 reads this before its first update."""
        raise self._refuse_optimizer()

    @property
    def _distributed_container(self) -> NoReturn:
        """Refuses an optimizer of Keras 2, which asks this before it creates a variable's slots."""
        raise self._refuse_optimizer()

    def _serialize_to_tensors(self) -> NoReturn:
        """Refuses `model.export` and `tf.saved_model.save`; part of TensorFlow's Trackable."""
        raise self.refuse("saved")

    def _refuse_optimizer(self) -> UnsupportedError:
        return UnsupportedError(
            f"The rows of table '{self.table.name}' are in shared memory, where a Keras optimizer "
            "cannot reach them. Compile with tfhybrid.DistributedOptimizer(optimizer), on one "
            "rank too."
        )

    def refuse(self, verb: str) -> UnsupportedError:
        """Returns the error for Keras's own ways to read and write the weights of a model.

        Args:
            verb: Participle of what would be done with the rows, such as `"copied"`.
        """
        return UnsupportedError(
            f"The rows of table '{self.table.name}' are in shared memory and are not {verb} with "
            "the weights of the model: the result would mix two states of it (get_weights, "
            "set_weights, EarlyStopping(restore_best_weights=True), export). Save with "
            "tfhybrid.callbacks.Checkpoint(directory) and restore the step you want with "
            "tfhybrid.checkpoint.restore(model, directory, step=...). To serve the model, use "
            "tfhybrid.export.saved_model(model, path)."
        )


def refuse_to_save(tables: list[str]) -> UnsupportedError:
    """Returns the error for a layer that Keras asks to save or load its variables."""
    return UnsupportedError(
        f"model.save, save_weights, ModelCheckpoint and BackupAndRestore would leave out the "
        f"tables {tables}, which are in shared memory. Use "
        "tfhybrid.callbacks.Checkpoint(directory) to save dense weights, tables and position "
        "together, and tfhybrid.export.saved_model(model, path) to serve the model."
    )
