"""The shared-memory store: one copy of the tables per host."""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.store.frozen_table import FrozenTable, TableFile
    from tfhybrid.store.job import current_job, init, shutdown
    from tfhybrid.store.record_file import RecordFile
    from tfhybrid.store.row_block import RowBlock
    from tfhybrid.store.table import Table, WaitingTable
    from tfhybrid.store.table_stats import TableStats

__all__ = [
    "FrozenTable",
    "RecordFile",
    "RowBlock",
    "Table",
    "TableFile",
    "TableStats",
    "WaitingTable",
    "current_job",
    "init",
    "shutdown",
]

# Imported when first used: `tfhybrid.store.native` alone needs neither TensorFlow nor Horovod.
_SOURCES = {
    "FrozenTable": "frozen_table",
    "RecordFile": "record_file",
    "RowBlock": "row_block",
    "Table": "table",
    "TableFile": "frozen_table",
    "TableStats": "table_stats",
    "WaitingTable": "table",
    "current_job": "job",
    "init": "job",
    "shutdown": "job",
}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
