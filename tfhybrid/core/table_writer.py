"""Operations of a host's leader on a table between two steps."""

from __future__ import annotations

import ctypes
import os

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.frozen_table import FrozenTable, TableFile
from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowBlock
from tfhybrid.errors import ConfigError


class TableWriter:
    """Writes rows into a table of the host's store, and from it to files; not during a step.

    `Table.writer` creates it. On a rank that is not the leader its methods raise `StoreError`.

    Args:
        engine: The engine in which the table is open.
        name: The table's name.
        dim: The table's dim.
        state_shape: Shape of a row's optimizer state: vectors, and floats in each.
        waiting: Writer for the keys that wait for admission, if the table has admission.
        owned_as: The sharded table whose owner rule decides which keys this host keeps; `None`
            keeps all.
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
        """Reserves space for this many rows in total.

        Raises:
            OutOfSpaceError: Shared memory is full. The table is unchanged.
        """
        self._call("reserve", ctypes.c_int64(rows))

    def write_rows(self, block: RowBlock) -> int:
        """Creates or overwrites rows; of a sharded table, only those that this host owns.

        Args:
            block: The rows; of equal keys the last one wins. Without states they start fresh, and
                without a history they count as just updated.

        Returns:
            How many rows were written.
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

    def load_records(self, file: RecordFile) -> None:
        """Adds the rows of a binary file."""
        schema = native.RecordSchemaStruct(*file.layout(self._dim))
        rows = ctypes.c_int64()
        path = os.fsencode(file.path)
        self._call("load_records", path, ctypes.byref(schema), ctypes.byref(rows))

    def remove_keys(self, keys: np.ndarray) -> None:
        """Removes the rows of keys that have one.

        Args:
            keys: int64 `[n]`.
        """
        keys = np.ascontiguousarray(keys, np.int64)
        self._call("remove_keys", ctypes.c_int64(len(keys)), native.pointer(keys))

    def clear(self) -> None:
        """Removes all rows and all waiting keys."""
        self._call("clear")
        if self._waiting is not None:
            self._waiting.clear()

    def set_decay(self, decay: float) -> None:
        """Sets the decay of a cleared table; see `Table.decay`."""
        self._call("set_decay", ctypes.c_double(decay))

    def set_event_time(self, time: int) -> None:
        """Sets the event time of a saved table."""
        self._call("set_event_time", ctypes.c_int64(time))

    def track_changes(self, cursor: str) -> None:
        """Notes from now on which rows change, for `freeze`.

        It ends when rows are loaded or cleared. A bit per row, in this process's memory.

        Args:
            cursor: Who wants to know it. Each cursor has marks of its own.
        """
        self._call("track_changes", cursor.encode())

    def freeze(self, cursor: str = "", *, only_changed: bool = False) -> FrozenTable:
        """Keeps the rows as they are now, to be written while training goes on.

        Rows are copied just before they change. Until `thaw`, rows can be neither loaded nor
        cleared.

        Args:
            cursor: As of `track_changes`: whose marks are taken. By default nobody's.
            only_changed: Keep those that changed since the cursor's last `freeze` or
                `track_changes`. All are kept where it is not tracked, and where weights decay.
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

    def return_changes(self) -> None:
        """Gives the cursor back the marks that `freeze` took, so that the next one has them too.

        For what could not be written; before `thaw`.
        """
        self._call("return_changes")

    def removed_keys(self, frozen: FrozenTable) -> np.ndarray:
        """Returns the keys, int64, whose rows were removed in the period of the frozen rows.

        Apply them before the rows: some of these keys may have a row again.
        """
        keys = np.empty(frozen.removed, np.int64)
        self._call("removed_keys", native.pointer(keys))
        return keys

    def write_part(self, part: int, path: str | os.PathLike[str] | None) -> TableFile:
        """Writes a part of the frozen rows as safetensors; threads may write parts in parallel.

        Training may continue meanwhile.

        Args:
            part: Number of the part, from 0; each part once.
            path: A new file. `None` only describes what would be written.

        Raises:
            OutOfSpaceError: The disk is full. No file is left behind.
            StoreError: The file cannot be written, or the table is not frozen.
        """
        struct = native.TableFileStruct()
        file = None if path is None else os.fsencode(path)
        self._call("write_part", ctypes.c_int64(part), file, ctypes.byref(struct))
        return TableFile(struct.rows, struct.bytes, struct.digest, struct.crc)

    def thaw(self) -> None:
        """Ends `freeze`."""
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
