"""Filling an empty table with rows that another program wrote."""

from __future__ import annotations

from typing import Protocol

from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowSource
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.errors import ConfigError, DataError


class Fillable(Protocol):
    """A table, on the leader of a host."""

    name: str
    dim: int
    state_shape: tuple[int, int]

    @property
    def rows(self) -> int:
        """Rows in the table."""

    @property
    def writer(self) -> TableWriter:
        """What writes them."""


def fill(table: Fillable, source: RecordFile | RowSource) -> None:
    """Loads rows on the leader; on failure the table is empty.

    Raises:
        ConfigError: The table has rows.
        DataError: The source is malformed, does not fit the table, or holds a key twice.
        CorruptFileError: A binary file is cut short, or holds a key twice.
    """
    if table.rows:
        raise ConfigError(
            f"A file is loaded into an empty table. Received: table '{table.name}' with "
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
            f"{source.path} holds a key twice: {count} rows of {table.rows} different keys."
        )
