"""Export of trained models, for serving without tfhybrid."""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.export.graph_without_tables import serving_graph
    from tfhybrid.export.saved_model import saved_model

__all__ = ["saved_model", "serving_graph"]

# Imported when first used: a process that serves has no Horovod.
_SOURCES = {"saved_model": "saved_model", "serving_graph": "graph_without_tables"}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
