"""Serving published weights in a process without Horovod and without a job."""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.serving.read_only_node import RemoteReader
    from tfhybrid.serving.reader import Reader
    from tfhybrid.serving.served_model import ServedModel
    from tfhybrid.serving.stock_export import StockExport

__all__ = ["Reader", "RemoteReader", "ServedModel", "StockExport"]

# Imported at first use, because readers need no TensorFlow.
_SOURCES = {
    "Reader": "reader",
    "RemoteReader": "read_only_node",
    "ServedModel": "served_model",
    "StockExport": "stock_export",
}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
