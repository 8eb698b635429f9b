"""The shared-memory store: one copy of the tables per host."""

from tfhybrid.store.job import current_job, init, shutdown
from tfhybrid.store.record_file import RecordFile
from tfhybrid.store.table import RowBlock, Table, TableStats

__all__ = ["RecordFile", "RowBlock", "Table", "TableStats", "current_job", "init", "shutdown"]
