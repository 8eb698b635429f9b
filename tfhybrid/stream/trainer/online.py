"""Keras callback for online training: reads weights, trains a lease, sends the update."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.checkpoint import restoring, stored
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.errors import CheckpointError, ConfigError, UnsupportedError
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.store import RowBlock, Table
from tfhybrid.stream.trainer.leases import Leases
from tfhybrid.stream.trainer.pushed_gradients import PushedGradients
from tfhybrid.stream.trainer.pushing import Push, PushedDeltas
from tfhybrid.stream.trainer.table_keys import TableKeys


class Online(keras.callbacks.Callback):
    """Callback that trains the sync unit's weights instead of this process's own.

    Before the first step of a lease, the callback reads the weights for it from the sync unit.
    After the last step it sends the changes of these weights; the optimizer's state stays in this
    process, beside the rows that it has trained. With `Leases(push="gradients")` a lease is one
    step: its gradients are sent, and the sync unit keeps the optimizer's state.

    The callback is for a job of one rank. Errors are raised when training begins.

    Args:
        leases: Leases of the dataset given to `fit`.
        tables: Name of the column with the keys of each table, by table name; all tables of the
            model. A list of names if several features share the table. Strings are hashed as
            `tfhybrid.layers.StringKeys` does, which the model must have for them. If the model has
            a `tfhybrid.features.Features`, names are those of its features, whose keys are computed
            from the columns.
        checkpoint: Directory of checkpoints of a synchronous job. This trainer restores the newest
            one. If it is the model's first trainer, the sync unit reads its initial weights from
            that checkpoint, too, so it must see the directory. With `Leases(push="gradients")` the
            optimizer states are included. Default: `None`, no checkpoint.

    Raises:
        ConfigError: `tables` does not name exactly the model's tables, or names a column or feature
            that has no keys; the job has several ranks; the target model was created with
            other tables or weights; or the model has none.
        UnsupportedError: A table has admission or eviction, which only the sync unit may do; or the
            optimizer does something that the sync unit cannot do.
        CheckpointError: `checkpoint` has no checkpoint, it does not fit the model, or the sync unit
            cannot read it.
        StreamError: The sync unit cannot be reached, or has no such target model.
        OutOfSpaceError: Memory or disk of the sync unit has no space.
        OSError: The directory `checkpoint` cannot be read.
        NotInitializedError: `tfhybrid.init()` was not called.

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
        tables: Mapping[str, str | Sequence[str]],
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._checkpoint = checkpoint
        self._leases = leases
        self._columns = dict(tables)
        self._keys: TableKeys | None = None
        self._tables: dict[str, Table] = {}
        self._dense: list[Any] = []
        self._push: Push | None = None
        self._in_lease = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the target model (the weights to train) in the sync unit, unless it is open.

        Called by Keras, on the thread of `fit`. Restores the checkpoint first, if there is one.

        Raises:
            ConfigError: The column of a table is missing, the job has several ranks, the target
                model was created with other tables or weights, or the model has none.
            UnsupportedError: A table has admission or eviction, or the sync unit does not have what
                the optimizer does.
            CheckpointError: There is no checkpoint, it does not fit the model, or the sync unit
                cannot read it.
            StreamError: The sync unit cannot be reached, or has no such target model.
            OutOfSpaceError: Memory or disk of the sync unit has no space.
            OSError: The directory of checkpoints cannot be read.
            NotInitializedError: `tfhybrid.init()` was not called.
        """
        if self._push is None:
            self._open()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Reads the weights from the sync unit if a lease begins. Called by Keras.

        Blocks while there are no rows, if `leases` waits for them.

        Raises:
            StreamError: The sync unit or the provider cannot be reached, a lease is refused, or
                rows are lost.
            DataError: There are too many bad rows.
            StoreError: A record is damaged, or a file of the provider or the sync unit cannot be
                written.
            UnsupportedError: With `Leases(direct=True)`, a queue is in Kafka, and confluent-kafka
                is not installed.
        """
        if not self._in_lease and self._leases.batch() is not None:
            self._read()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends the update of the lease if this was its last batch. Called by Keras.

        Raises:
            ConfigError: A value of the update is not finite.
            StreamError: The sync unit or the provider cannot be reached.
            DataError: A gradient is not finite, with pushed gradients.
            OutOfSpaceError: Memory or disk of the sync unit has no space.
        """
        if self._leases.trained():
            self._in_lease = False
            pushed = self._opened().collect()
            self._leases.send(pushed.keys, pushed.values, pushed.dense, pushed.rates)

    def on_train_end(self, logs: Any = None) -> None:
        """Gives back the leases that were not trained, and ends the pushing. Called by Keras.

        Raises:
            StreamError: The provider cannot be reached.
        """
        self._in_lease = False
        self._leases.leave()
        self._opened().close()
        self._push = None

    def _open(self) -> None:
        if distributed.size() > 1:
            raise ConfigError(
                "A trainer of a stream must be a job of one rank: start more trainers instead. "
                f"Received: {distributed.size()} ranks"
            )
        self._tables = tables_of(self.model)
        if set(self._tables) != set(self._columns):
            raise ConfigError(
                f"Online needs the column of each table of the model, {sorted(self._tables)}. "
                f"Received: {sorted(self._columns)}"
            )
        self._keys = TableKeys(self.model, self._columns, self._leases.schema)
        for name, table in self._tables.items():
            if table.keeps_history:
                raise UnsupportedError(
                    f"Table '{name}' has admission or eviction, and the sync unit does both: "
                    "remove them from the trainers' TableConfig and set them in stream.yaml"
                )
        restored = None if self._checkpoint is None else self._restore(self._checkpoint)
        same_optimizer = restored is not None and self._was_saved_with_its_optimizer(restored)
        trained, others = dense_variables(self.model)
        self._dense = [*trained, *others]
        if self._leases.push == "gradients":
            self._push = PushedGradients(self.model, self._tables, others)
        else:
            self._push = PushedDeltas(self._tables, self._dense)
        first = [np.asarray(each, np.float32) for each in self._dense]
        states = self._push.states() if same_optimizer else None
        self._leases.open(self._push.spec(), first, restored, states)

    def _restore(self, directory: str | os.PathLike[str]) -> tuple[str, int]:
        steps = stored.steps(directory)
        if not steps:
            raise CheckpointError(
                f"Online restores the newest checkpoint. Received: {os.fspath(directory)}, "
                "which has none"
            )
        restoring.restore(self.model, directory, step=steps[-1])
        return os.path.abspath(directory), steps[-1]

    def _was_saved_with_its_optimizer(self, restored: tuple[str, int]) -> bool:
        saved = stored.StoredCheckpoint.open(stored.locate(*restored)).manifest.optimizer
        return saved == type(self.model.optimizer).__name__

    def _opened(self) -> Push:
        assert self._push is not None
        return self._push

    def _read(self) -> None:
        work = self._leases.work
        assert work is not None
        assert self._keys is not None
        keys = self._keys.among(work.batch)
        rows, dense = self._leases.read(keys)
        for name, table in self._tables.items():
            _write(table, keys[name], rows[name])
        for variable, value in zip(self._dense, dense, strict=True):
            variable.assign(value)
        self._opened().begin(keys, rows, dense, self._leases.version)
        self._in_lease = True


def dense_variables(model: keras.Model) -> tuple[list[Any], list[Any]]:
    """Returns the dense weights that the sync unit holds.

    The states of random generators and of metrics belong to each trainer and are left out.

    Args:
        model: Keras model, built.

    Returns:
        The weights that gradients train, and the weights that they do not.
    """
    return (
        [each for each in model.trainable_variables if not isinstance(each, TableProxy)],
        [each for each in model.non_trainable_weights if not isinstance(each, TableProxy)],
    )


def _write(table: Table, keys: np.ndarray, rows: np.ndarray) -> None:
    """Writes rows; rows that this process has trained keep their optimizer states."""
    table.lookup(keys[:1])  # waits for the last step's update
    present = table.read(keys, states=True)
    indices = np.searchsorted(keys, present.keys)
    table.writer.write_rows(RowBlock(present.keys, rows[indices], present.states))
    new = np.ones(len(keys), bool)
    new[indices] = False
    table.writer.write_rows(RowBlock(keys[new], rows[new], None))
