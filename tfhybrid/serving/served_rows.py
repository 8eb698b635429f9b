"""Rows of published tables, in a store of this process in shared memory."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterator, Mapping

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_set import TableSet
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.errors import DataError
from tfhybrid.stream.weights.model_spec import ModelSpec

_BLOCK_ROWS = 65536

_numbers = itertools.count(1)  # one for each store of this process


class ServedRows(TableSet):
    """Rows of all tables of a target model, the dense weights included.

    Threads may call `read` at the same time, but not while another one calls `reserve`, `write` or
    `remove`: the caller locks.

    Args:
        spec: Tables and dense weights of the model.
        memory: Directory of the store, in shared memory; made if it does not exist.
        name: Name of the model.

    Raises:
        TfhybridError: The store or a table cannot be made.
        OSError: The directory cannot be made.
    """

    def __init__(self, spec: ModelSpec, memory: str, name: str) -> None:
        super().__init__()
        job = f"serving-{name}-{os.getpid()}-{next(_numbers)}"
        self.create_store(memory, job, f"reader of {name}, pid {os.getpid()}")
        with self.closed_on_error():
            for table, each in spec.all_tables.items():
                self.open_table(OpenedTable(table, each.dim, each.initializer, spec.seed))
                self.engine.set_unseen(table, each.unseen)

    def reserve(self, more: Mapping[str, int]) -> None:
        """Reserves space for more rows.

        Args:
            more: Number of rows to come, by table.

        Raises:
            OutOfSpaceError: Shared memory is full. No row was changed.
        """
        for table, count in more.items():
            self._writer(table).reserve(self.rows(table) + count)

    def write(self, table: str, keys: np.ndarray, embeddings: np.ndarray) -> None:
        """Creates or overwrites rows of a table.

        Args:
            table: Name of the table.
            keys: int64 `[n]`.
            embeddings: float32 `[n, dim]`.

        Raises:
            OutOfSpaceError: Shared memory is full.
            ConfigError: The arrays have wrong shapes.
        """
        self._writer(table).write_rows(RowBlock(keys, embeddings, None))

    def remove(self, table: str, keys: np.ndarray) -> None:
        """Removes the rows of keys, int64 `[n]`; keys without a row are ignored.

        Args:
            table: Name of the table.
            keys: int64 `[n]`.

        Raises:
            StoreError: The store is closed.
        """
        self._writer(table).remove_keys(keys)

    def read(self, table: str, keys: np.ndarray) -> np.ndarray:
        """Returns embeddings, float32 `keys.shape + (dim,)`.

        A key without a row reads what the publication says (`TableSpec.unseen`).

        Args:
            table: Name of the table.
            keys: int64 of any shape.

        Raises:
            DataError: A key is missing, or not a whole number of int64.
            StoreError: The store is closed.
        """
        return self.engine.lookup(table, self.dims[table], keys_of(table, keys), outside=True)

    def blocks(self, table: str) -> Iterator[RowBlock]:
        """Yields all rows of a table in blocks, without states; nobody may write meanwhile.

        Raises:
            StoreError: The store is closed.
        """
        total, dim = self.rows(table), self.dims[table]
        for first in range(0, total, _BLOCK_ROWS):
            count = min(_BLOCK_ROWS, total - first)
            block = RowBlock(np.empty(count, np.int64), np.empty((count, dim), np.float32), None)
            self.engine.call(
                "table_read_rows",
                table.encode(),
                ctypes.c_int64(first),
                ctypes.c_int64(count),
                *map(native.pointer, (block.keys, block.embeddings, None, None)),
            )
            yield block

    def _writer(self, table: str) -> TableWriter:
        return TableWriter(self.engine, table, self.dims[table], (0, self.dims[table]), None)


def keys_of(table: str, keys: np.ndarray) -> np.ndarray:
    """Returns the keys of a request as int64.

    Args:
        table: Name of the table, for errors.
        keys: Keys of any shape. Masked ones are missing.

    Raises:
        DataError: A key is missing, or not a whole number of int64.
    """
    masked = np.ma.is_masked(keys)
    if not masked:
        keys = np.asarray(keys)
    if keys.dtype == np.int64 and not masked:
        return keys
    from tfhybrid.values import Column, check  # imports pyarrow, which well-behaved clients spare

    flat = keys.reshape(-1)
    checked = check(Column("key"), flat)
    if checked.bad.any():
        first = flat[int(np.argmax(checked.bad))]
        raise DataError(
            f"Table {table!r}: expected keys, whole numbers of int64. Received: {first!r} among "
            f"{keys.dtype} {list(keys.shape)}"
        )
    return checked.values.reshape(keys.shape)
