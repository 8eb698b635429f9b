"""Loading of rows that another program wrote into an empty table."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowSource
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.errors import ConfigError, DataError


class Fillable(Protocol):
    """Table that can be filled, on the leader of a host. `store.Table` is one."""

    name: str
    dim: int
    state_shape: tuple[int, int]

    @property
    def rows(self) -> int:
        """Number of rows in the table."""

    @property
    def writer(self) -> TableWriter:
        """Operations on the table that only the leader of a host may call, such as loading rows."""


def fill(table: Fillable, source: RecordFile | RowSource) -> None:
    """Loads rows into a table, on the leader.

    If loading fails, the table is empty afterwards. A table that has rows already is unchanged.

    Args:
        table: The table, which must be empty.
        source: Binary file of records, or a source of rows.

    Raises:
        ConfigError: The table has rows, or the records lack a field that fits the table.
        DataError: The source is malformed, does not fit the table, or has a bad row or duplicate
            keys.
        CorruptFileError: A binary file is truncated, has an embedding that is not finite, or has
            duplicate keys.
        OutOfSpaceError: There is no space for the rows.
        StoreError: The binary file cannot be read, or this process is not the leader.
        OSError: The file of another source is missing.
    """
    if table.rows:
        raise ConfigError(
            f"Rows can be loaded only into an empty table. Received: table '{table.name}' with "
            f"{table.rows} rows"
        )
    try:
        if isinstance(source, RecordFile):
            table.writer.load_records(source)
        else:
            _fill_by_blocks(table, source)
    except BaseException:
        table.writer.clear()
        raise


def _fill_by_blocks(table: Fillable, source: RowSource) -> None:
    count = 0
    for block in source.blocks(table.dim, table.state_shape):
        count += table.writer.write_rows(block)
    if count != table.rows:
        raise DataError(
            f"{source.path} has duplicate keys: {count} rows with {table.rows} distinct keys"
            f"{_repeated_key(table, source)}."
        )


def _repeated_key(table: Fillable, source: RowSource) -> str:
    """Returns the first repeated key, in words; nothing if the source yields its rows only once."""
    blocks = source.blocks(table.dim, table.state_shape)
    keys = np.concatenate([np.empty(0, np.int64), *(block.keys for block in blocks)])
    order = np.argsort(keys, kind="stable")
    repeats = order[1:][keys[order[1:]] == keys[order[:-1]]]
    if not len(repeats):
        return ""
    row = int(repeats.min())
    first = int(np.argmax(keys == keys[row]))
    return f". Received: key {keys[row]} in rows {first} and {row}"
