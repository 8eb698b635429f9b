"""Writer of a table: operations of a host's leader between two steps."""

from __future__ import annotations

import ctypes
import os

import numpy as np

from tfhybrid._remote import remote
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.frozen_table import FrozenTable, TableFile
from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowBlock
from tfhybrid.errors import ConfigError


class TableWriter:
    """Writer of rows into a table of the host's store, and from the table into files.

    `Table.writer` creates it. Call its methods on the leader only: on other ranks they raise
    `StoreError`, except `thaw`, which does nothing there. Call them between two steps; only
    `write_part`, `removed_keys` and `thaw` may also run during steps, on any thread. All raise
    `StoreError` once the job has ended.

    Args:
        engine: Engine in which the table is open.
        name: Name of the table.
        dim: Length of an embedding.
        state_shape: Shape of a row's optimizer state: vectors, and floats in each.
        waiting: Writer of the keys that wait for admission; `None` without admission.
        owned_as: Name of the sharded table whose placement decides which keys this host keeps.
            `None` keeps all.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        dim: int,
        state_shape: tuple[int, int],
        waiting: TableWriter | None,
        owned_as: str | None = None,
    ) -> None:
        self._engine = engine
        self._name = name
        self._dim = dim
        self._state_shape = state_shape
        self._waiting = waiting
        self._owned_as = owned_as

    def reserve(self, rows: int) -> None:
        """Reserves space for rows.

        Args:
            rows: Number of rows in total, existing ones included.

        Raises:
            OutOfSpaceError: Shared memory is full. The table is unchanged.
        """
        self._call("reserve", ctypes.c_int64(rows))

    @remote
    def write_rows(self, block: RowBlock) -> int:
        """Creates or overwrites rows. Skips those that this host does not own.

        Args:
            block: Rows; of equal keys the last one wins. Without states, rows get fresh optimizer
                state; without a history, they count as just updated.

        Returns:
            Number of rows that were written.

        Raises:
            ConfigError: The arrays of the block have wrong shapes.
            OutOfSpaceError: There is no space for the rows.
            StoreError: The table is frozen.
        """
        self._check(block)
        if self._owned_as is not None:
            block = block.where(self._engine.owned(self._owned_as, block.keys))
        keys = np.ascontiguousarray(block.keys, np.int64)
        embeddings = np.ascontiguousarray(block.embeddings, np.float32)
        states = None if block.states is None else np.ascontiguousarray(block.states, np.float32)
        history = None if block.history is None else np.ascontiguousarray(block.history)
        self._call(
            "write_rows",
            ctypes.c_int64(len(keys)),
            native.pointer(keys),
            native.pointer(embeddings),
            native.pointer(states),
            native.pointer(history),
        )
        return len(keys)

    @remote
    def load_records(self, file: RecordFile) -> None:
        """Creates or overwrites the rows of a binary file.

        Args:
            file: Path and layout of the file.

        Raises:
            ConfigError: The records lack a field, or it has the wrong type.
            CorruptFileError: The file is truncated, an embedding is not finite, or there are
                duplicate keys or keys that the table had.
            OutOfSpaceError: There is no space for the rows.
            StoreError: The file cannot be read, or the table is frozen.
        """
        schema = native.RecordSchemaStruct(*file.layout(self._dim))
        rows = ctypes.c_int64()
        path = os.fsencode(file.path)
        self._call("load_records", path, ctypes.byref(schema), ctypes.byref(rows))

    @remote
    def remove_keys(self, keys: np.ndarray) -> None:
        """Removes rows. Ignores keys without a row.

        Args:
            keys: Keys of the rows, int64 `[n]`.

        Raises:
            StoreError: The table is frozen.
        """
        keys = np.ascontiguousarray(keys, np.int64)
        self._call("remove_keys", ctypes.c_int64(len(keys)), native.pointer(keys))

    @remote
    def clear(self) -> None:
        """Removes all rows and all waiting keys.

        Raises:
            StoreError: The table is frozen.
        """
        self._call("clear")
        if self._waiting is not None:
            self._waiting.clear()

    @remote
    def set_decay(self, decay: float) -> None:
        """Sets the decay of a table that was just cleared.

        Args:
            decay: Factor by which weight decay has shrunk the initial values of keys without a row,
                above 0 and at most 1.

        Raises:
            ConfigError: The table has rows, or the factor is out of range.
        """
        self._call("set_decay", ctypes.c_double(decay))

    @remote
    def set_event_time(self, time: int) -> None:
        """Sets the event time of a table after loading.

        Args:
            time: Latest event time that the saved table had seen, in the unit of its event clock.

        Raises:
            StoreError: This process is not the leader.
        """
        self._call("set_event_time", ctypes.c_int64(time))

    @remote
    def track_changes(self, cursor: str) -> None:
        """Starts to mark changed rows, for `freeze`. Takes a bit per row of this process's memory.

        Marking ends when rows are loaded or cleared.

        Args:
            cursor: Name of a set of marks. Each kind of save has a set of its own.

        Raises:
            StoreError: This process is not the leader.
        """
        self._call("track_changes", cursor.encode())

    @remote
    def freeze(self, cursor: str = "", *, only_changed: bool = False) -> FrozenTable:
        """Keeps the rows as they are now, so that they can be written while training continues.

        Rows are copied just before they change. Until `thaw`, rows can be neither loaded nor
        cleared.

        Args:
            cursor: Name of the cursor of `track_changes` whose marks are used and cleared. Default:
                none.
            only_changed: Whether to keep only rows that changed since the cursor's last `freeze` or
                `track_changes`. Keeps all rows if the cursor is not tracked, or if weights decay.

        Returns:
            Sizes and versions of the frozen table, with the number of parts to write.

        Raises:
            StoreError: This process is not the leader, or the table is frozen already.
        """
        struct = native.FrozenTableStruct()
        self._call("freeze", cursor.encode(), ctypes.c_int(only_changed), ctypes.byref(struct))
        return FrozenTable(
            struct.rows,
            struct.version,
            struct.parts,
            bool(struct.whole),
            struct.removed,
            struct.event_time,
            struct.decay,
        )

    @remote
    def return_changes(self) -> None:
        """Restores the marks that `freeze` cleared, so that the next `freeze` has them too.

        Call it before `thaw`, if the rows could not be written.

        Raises:
            StoreError: This process is not the leader.
        """
        self._call("return_changes")

    @remote
    def removed_keys(self, frozen: FrozenTable) -> np.ndarray:
        """Returns the keys whose rows were removed since the cursor's last `freeze`, int64.

        Apply the removals before the rows, because some of these keys may have a row again.

        Args:
            frozen: Result of `freeze`.

        Raises:
            StoreError: The table is not frozen.
        """
        keys = np.empty(frozen.removed, np.int64)
        self._call("removed_keys", native.pointer(keys))
        return keys

    @remote
    def write_part(self, part: int, path: str | os.PathLike[str] | None) -> TableFile:
        """Writes a part of the frozen rows to a new safetensors file.

        Several threads may write parts at the same time, during steps too. The owner of the rows
        writes the file: this process, or the embedding node that has them.

        Args:
            part: Number of the part, from 0 to `FrozenTable.parts - 1`. Each part can be written or
                described once.
            path: Path of the file, which must not exist; `None` to describe the file without
                writing it.

        Returns:
            Description of the file.

        Raises:
            OutOfSpaceError: The disk is full. No file is left.
            StoreError: The file exists or cannot be written, or the table is not frozen; or the
                embedding node that writes the file is gone.
        """
        struct = native.TableFileStruct()
        file = None if path is None else os.fsencode(path)
        self._call("write_part", ctypes.c_int64(part), file, ctypes.byref(struct))
        return TableFile(struct.rows, struct.bytes, struct.digest, struct.crc)

    @remote
    def thaw(self) -> None:
        """Ends a `freeze`: frees the copies of rows. Rows can be loaded and cleared again.

        Raises:
            StoreError: The job has ended.
        """
        self._call("thaw")

    def _check(self, block: RowBlock) -> None:
        count = len(block.keys)
        shapes = [block.keys.shape == (count,), block.embeddings.shape == (count, self._dim)]
        if block.states is not None:
            shapes.append(block.states.shape == (count, *self._state_shape))
        if block.history is not None:
            shapes.append((block.history.shape, block.history.dtype) == ((count,), native.HISTORY))
        if not all(shapes):
            vectors, floats = self._state_shape
            raise ConfigError(
                f"Rows of table '{self._name}' are keys [n], embeddings [n, {self._dim}] and "
                f"states [n, {vectors}, {floats}], and a history [n]. Received: "
                f"{block.keys.shape}, {block.embeddings.shape}, "
                f"{None if block.states is None else block.states.shape}, "
                f"{None if block.history is None else block.history.shape}"
            )

    def _call(self, function: str, *arguments: object) -> None:
        self._engine.call(f"table_{function}", self._name.encode(), *arguments)
