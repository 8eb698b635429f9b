"""Published weights in a process that serves: without Horovod, and without a job."""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.serving.reader import Reader

__all__ = ["Reader"]

# Imported when first used: a reader needs no TensorFlow.
_SOURCES = {"Reader": "reader"}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
