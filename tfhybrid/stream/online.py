"""The callback that trains a Keras model online: weights in, a lease trained, deltas out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from tensorflow import keras

from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.layers import TableProxy
from tfhybrid.store import RowBlock, Table
from tfhybrid.stream.leases import Leases
from tfhybrid.stream.model_spec import ModelSpec, TableSpec


class Online(keras.callbacks.Callback):
    """Trains the sync unit's weights instead of this process's own.

    Before the first step of a lease the weights that it needs come from the sync unit; after its
    last step, how they have changed goes there. The optimizer's state stays in this process, with
    the rows that it has trained.

    Args:
        leases: Of the dataset that `fit` is given.
        tables: By the name of a table, the column that has its keys; all tables of the model.

    Raises:
        ConfigError: At the beginning of training, if the model's tables are others.
        UnsupportedError: Likewise, if a table has admission or eviction, which are the sync unit's.

    Example:

    ```python
    online = tfhybrid.stream.Online(leases, tables={"item": "item"})
    model.fit(tfhybrid.stream.dataset(leases, features=["item"], label="label"), callbacks=[online])
    ```
    """

    def __init__(self, leases: Leases, *, tables: Mapping[str, str]) -> None:
        super().__init__()
        self._leases = leases
        self._columns = dict(tables)
        self._tables: dict[str, Table] = {}
        self._dense: list[Any] = []
        self._opened = False
        self._keys: dict[str, np.ndarray] = {}
        self._before: dict[str, np.ndarray] = {}
        self._dense_before: list[np.ndarray] | None = None  # none between two leases

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Reads the weights, if a lease begins."""
        if not self._opened:
            self._open()
        if self._dense_before is None and self._leases.batch() is not None:
            self._read()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends the deltas, if a lease ends."""
        if self._leases.trained():
            self._send()

    def on_train_end(self, logs: Any = None) -> None:
        """Gives back what has not been trained."""
        self._dense_before = None
        self._leases.leave()

    def _open(self) -> None:
        self._tables = tables_of(self.model)
        if set(self._tables) != set(self._columns):
            raise ConfigError(
                f"Online wants the column of each table of the model, {sorted(self._tables)}. "
                f"Received: {sorted(self._columns)}"
            )
        for name, table in self._tables.items():
            if table.keeps_history:
                raise UnsupportedError(
                    f"Table '{name}' has admission or eviction. The sync unit decides both: "
                    "leave them out of the trainers' TableConfig"
                )
        # What batch normalisation counts is added up over the trainers as weights are.
        weights = [*self.model.trainable_variables, *self.model.non_trainable_variables]
        self._dense = [each for each in weights if not isinstance(each, TableProxy)]
        spec = ModelSpec(
            {
                name: TableSpec(table.dim, table.config.initializer.native)
                for name, table in sorted(self._tables.items())
            },
            [tuple(each.shape) for each in self._dense],
            seed=next((table.seed for table in self._tables.values()), 0),
        )
        self._leases.open(spec, self._dense_values())
        self._opened = True

    def _read(self) -> None:
        work = self._leases.work
        assert work is not None
        self._keys = {name: _keys(work.batch[self._columns[name]]) for name in self._tables}
        self._before, dense = self._leases.read(self._keys)
        for name, table in self._tables.items():
            _write(table, self._keys[name], self._before[name])
        for variable, value in zip(self._dense, dense, strict=True):
            variable.assign(value)
        self._dense_before = dense

    def _send(self) -> None:
        assert self._dense_before is not None
        deltas = {
            name: table.lookup(self._keys[name]) - self._before[name]
            for name, table in self._tables.items()
        }
        dense = [
            now - before
            for now, before in zip(self._dense_values(), self._dense_before, strict=True)
        ]
        self._dense_before = None
        self._leases.send(self._keys, deltas, dense)

    def _dense_values(self) -> list[np.ndarray]:
        return [np.asarray(each, np.float32) for each in self._dense]


def _keys(column: pa.Array) -> np.ndarray:
    flat = column.flatten() if pa.types.is_list(column.type) else column
    return np.unique(flat.to_numpy(zero_copy_only=False)).astype(np.int64)


def _write(table: Table, keys: np.ndarray, rows: np.ndarray) -> None:
    """Writes rows; those that were trained here before keep their optimizer's state."""
    table.lookup(keys[:1])  # waits for the last step's update
    known = table.read(keys, states=True)
    places = np.searchsorted(keys, known.keys)
    table.writer.write_rows(RowBlock(known.keys, rows[places], known.states))
    new = np.ones(len(keys), bool)
    new[places] = False
    table.writer.write_rows(RowBlock(keys[new], rows[new], None))
