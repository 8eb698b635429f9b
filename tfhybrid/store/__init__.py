"""The shared-memory store: one copy of the tables per host."""

from typing import TYPE_CHECKING

from tfhybrid._deprecated import renamed_names
from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.core.frozen_table import FrozenTable, TableFile
    from tfhybrid.core.record_file import RecordFile
    from tfhybrid.core.row_block import RowBlock
    from tfhybrid.core.table_writer import TableWriter
    from tfhybrid.store.table import Table, WaitingTable
    from tfhybrid.store.table_stats import ShardSize, TableStats

__all__ = [
    "FrozenTable",
    "RecordFile",
    "RowBlock",
    "ShardSize",
    "Table",
    "TableFile",
    "TableStats",
    "TableWriter",
    "WaitingTable",
]

# Imported on first use: a table needs TensorFlow and Horovod, a report of stores does not.
_SOURCES = {
    "FrozenTable": "tfhybrid.core.frozen_table",
    "RecordFile": "tfhybrid.core.record_file",
    "RowBlock": "tfhybrid.core.row_block",
    "Table": "table",
    "TableWriter": "tfhybrid.core.table_writer",
    "TableFile": "tfhybrid.core.frozen_table",
    "ShardSize": "table_stats",
    "TableStats": "table_stats",
    "WaitingTable": "table",
}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
    __getattr__ = renamed_names(__getattr__, OwnerShare="ShardSize")
