"""The shared-memory store: one copy of the tables per host."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfhybrid.store.job import current_job, init, shutdown
    from tfhybrid.store.record_file import RecordFile
    from tfhybrid.store.table import FrozenTable, RowBlock, Table, TableFile, TableStats

__all__ = [
    "FrozenTable",
    "RecordFile",
    "RowBlock",
    "Table",
    "TableFile",
    "TableStats",
    "current_job",
    "init",
    "shutdown",
]

# Imported when first used: `tfhybrid.store.native` alone needs neither TensorFlow nor Horovod.
_SOURCES = {
    "FrozenTable": "table",
    "RecordFile": "record_file",
    "RowBlock": "table",
    "Table": "table",
    "TableFile": "table",
    "TableStats": "table",
    "current_job": "job",
    "init": "job",
    "shutdown": "job",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports what is asked for the first time (PEP 562)."""
        if name not in _SOURCES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_SOURCES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
