"""Checkpoints: dense weights, optimizer, tables and data position, all of the same step."""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.checkpoint.broken_epoch import finish_epoch
    from tfhybrid.checkpoint.kept_model import keep_position
    from tfhybrid.checkpoint.manager import CheckpointManager
    from tfhybrid.checkpoint.restoring import restore, restore_best
    from tfhybrid.checkpoint.saving import save
    from tfhybrid.checkpoint.sources import (
        ArrayRows,
        NumpyRows,
        ParquetRows,
        TfraRows,
        VariableRows,
    )
    from tfhybrid.checkpoint.stored import steps
    from tfhybrid.core.record_file import RecordFile

__all__ = [
    "ArrayRows",
    "CheckpointManager",
    "NumpyRows",
    "ParquetRows",
    "RecordFile",
    "TfraRows",
    "VariableRows",
    "finish_epoch",
    "keep_position",
    "restore",
    "restore_best",
    "save",
    "steps",
]

# Imported when first used: reading a checkpoint's files needs neither TensorFlow nor Horovod.
_SOURCES = {
    "ArrayRows": "sources",
    "CheckpointManager": "manager",
    "NumpyRows": "sources",
    "ParquetRows": "sources",
    "RecordFile": "tfhybrid.core.record_file",
    "TfraRows": "sources",
    "VariableRows": "sources",
    "finish_epoch": "broken_epoch",
    "keep_position": "kept_model",
    "restore": "restoring",
    "restore_best": "restoring",
    "save": "saving",
    "steps": "stored",
}
_MODULES = ("dense", "manager", "manifest", "saving", "sources", "stored", "table_file")

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES, _MODULES)
