"""What the leader of a host does with a table between two steps."""

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
    """Rows into a table of the host's store, and out of it to files; not while a step runs.

    `Table.writer` makes it. On a rank that does not lead its methods raise `StoreError`.

    Args:
        engine: In which the table is open.
        name: Of the table.
        dim: Of the table.
        state_shape: Of a row's optimizer state: vectors, and floats in each.
        waiting: That of the keys which wait for admission, if any do.
        owned_as: The sharded table of whose keys this host keeps its own; `None` keeps all.
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
        """Makes room for so many rows in all.

        Raises:
            OutOfSpaceError: Shared memory is full. The table stays as it is.
        """
        self._call("reserve", ctypes.c_int64(rows))

    def write_rows(self, block: RowBlock) -> int:
        """Creates or overwrites rows; of a sharded table those that this host owns.

        Args:
            block: The rows; the last of equal keys wins. Without states they start fresh, and
                without a history as if they had been updated just now.

        Returns:
            How many it took.
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
        """Forgets all rows, and who waits."""
        self._call("clear")
        if self._waiting is not None:
            self._waiting.clear()

    def set_decay(self, decay: float) -> None:
        """Continues with a table that was cleared; see `Table.decay`."""
        self._call("set_decay", ctypes.c_double(decay))

    def set_event_time(self, time: int) -> None:
        """Continues with the event time of a table that was saved."""
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

        `thaw` ends it. Rows are copied aside just before they change. Until then nothing can be
        loaded or cleared.

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
        """Returns the keys, int64, whose rows were removed since what is frozen began to change.

        They come before the rows: some of them may have one again.
        """
        keys = np.empty(frozen.removed, np.int64)
        self._call("removed_keys", native.pointer(keys))
        return keys

    def write_part(self, part: int, path: str | os.PathLike[str] | None) -> TableFile:
        """Writes a part of the frozen rows as safetensors; several threads may write several.

        Training may go on meanwhile.

        Args:
            part: Which, from 0; each once.
            path: A new file. `None`: only describes what would be written.

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
