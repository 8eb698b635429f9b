"""The callback that trains a Keras model online: weights in, a lease trained, deltas out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.checkpoint import restoring, stored
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.errors import CheckpointError, ConfigError, UnsupportedError
from tfhybrid.layers import TableProxy
from tfhybrid.store import RowBlock, Table
from tfhybrid.stream.trainer.leases import Leases
from tfhybrid.stream.trainer.pushed_deltas import PushedDeltas
from tfhybrid.stream.trainer.pushed_gradients import PushedGradients
from tfhybrid.stream.trainer.pushing import Push


class Online(keras.callbacks.Callback):
    """Trains the sync unit's weights instead of this process's own.

    Before the first step of a lease the weights that it needs come from the sync unit. After its
    last step, how they have changed goes there; the optimizer's state stays in this process, with
    the rows that it has trained. With `Leases(push="gradients")` a lease is one step, its gradients
    go to the sync unit, and the optimizer's state is there.

    Args:
        leases: Of the dataset that `fit` is given.
        tables: By the name of a table, the column that has its keys; all tables of the model.
        checkpoint: Directory of checkpoints of a synchronous job. This trainer restores the newest,
            and the first trainer of all has the sync unit begin with it, which must see the
            directory too. With `Leases(push="gradients")` optimizer states come along.

    Raises:
        ConfigError: At the beginning of training, if the model's tables are others, or this process
            is one of several ranks.
        UnsupportedError: Likewise, if a table has admission or eviction, which are the sync unit's;
            or the optimizer does something that the sync unit does not.

    Example:

    ```python
    online = tfhybrid.stream.Online(leases, tables={"item": "item"})
    model.fit(tfhybrid.stream.dataset(leases, features=["item"], label="label"), callbacks=[online])
    ```
    """

    def __init__(
        self,
        leases: Leases,
        *,
        tables: Mapping[str, str],
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._checkpoint = checkpoint
        self._leases = leases
        self._columns = dict(tables)
        self._tables: dict[str, Table] = {}
        self._dense: list[Any] = []
        self._push: Push | None = None
        self._in_lease = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Tells the sync unit what the model consists of."""
        if self._push is None:
            self._open()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Reads the weights, if a lease begins."""
        if not self._in_lease and self._leases.batch() is not None:
            self._read()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends what the lease has given, if it ends."""
        if self._leases.trained():
            self._in_lease = False
            pushed = self._opened().collect()
            self._leases.send(pushed.keys, pushed.values, pushed.dense, pushed.rates)

    def on_train_end(self, logs: Any = None) -> None:
        """Gives back what has not been trained."""
        self._in_lease = False
        self._leases.leave()
        self._opened().close()
        self._push = None

    def _open(self) -> None:
        if distributed.size() > 1:
            raise ConfigError(
                "A trainer of a stream is a job of one rank: start more of them. "
                f"Received: {distributed.size()} ranks"
            )
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
        restored = None if self._checkpoint is None else self._restore(self._checkpoint)
        goes_on = restored is not None and self._was_saved_with_its_optimizer(restored)
        trained, others = dense_variables(self.model)
        self._dense = [*trained, *others]
        if self._leases.push == "gradients":
            self._push = PushedGradients(self.model, self._tables, others)
        else:
            self._push = PushedDeltas(self._tables, self._dense)
        first = [np.asarray(each, np.float32) for each in self._dense]
        states = self._push.states() if goes_on else None
        self._leases.open(self._push.spec(), first, restored, states)

    def _restore(self, directory: str | os.PathLike[str]) -> tuple[str, int]:
        known = stored.steps(directory)
        if not known:
            raise CheckpointError(
                f"Online begins with the newest checkpoint. Received: {os.fspath(directory)}, "
                "which has none"
            )
        restoring.restore(self.model, directory, step=known[-1])
        return os.path.abspath(directory), known[-1]

    def _was_saved_with_its_optimizer(self, restored: tuple[str, int]) -> bool:
        saved = stored.StoredCheckpoint.open(stored.locate(*restored)).manifest.optimizer
        return saved == type(self.model.optimizer).__name__

    def _opened(self) -> Push:
        assert self._push is not None
        return self._push

    def _read(self) -> None:
        work = self._leases.work
        assert work is not None
        keys = {name: _keys(work.batch[self._columns[name]]) for name in self._tables}
        rows, dense = self._leases.read(keys)
        for name, table in self._tables.items():
            _write(table, keys[name], rows[name])
        for variable, value in zip(self._dense, dense, strict=True):
            variable.assign(value)
        self._opened().begin(keys, rows, dense, self._leases.version)
        self._in_lease = True


def dense_variables(model: keras.Model) -> tuple[list[Any], list[Any]]:
    """Returns the dense weights that the sync unit has: trained ones, and those without gradients.

    Neither the states of random generators nor those of metrics, which are the trainer's own.
    """
    return (
        [each for each in model.trainable_variables if not isinstance(each, TableProxy)],
        [each for each in model.non_trainable_weights if not isinstance(each, TableProxy)],
    )


def _keys(column: pa.Array) -> np.ndarray:
    flat = column.flatten() if pa.types.is_list(column.type) else column
    distinct = pc.unique(flat)  # by a hash: there are far fewer than rows
    return np.sort(distinct.to_numpy(zero_copy_only=False).astype(np.int64))


def _write(table: Table, keys: np.ndarray, rows: np.ndarray) -> None:
    """Writes rows; those that were trained here before keep their optimizer's state."""
    table.lookup(keys[:1])  # waits for the last step's update
    known = table.read(keys, states=True)
    places = np.searchsorted(keys, known.keys)
    table.writer.write_rows(RowBlock(known.keys, rows[places], known.states))
    new = np.ones(len(keys), bool)
    new[places] = False
    table.writer.write_rows(RowBlock(keys[new], rows[new], None))
