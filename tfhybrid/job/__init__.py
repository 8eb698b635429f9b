"""Life cycle of a job: start, stores, liveness of the ranks, and end."""

from typing import TYPE_CHECKING

from tfhybrid._lazy import lazy

if TYPE_CHECKING:
    from tfhybrid.job.job import current_job, devices, init, shutdown

__all__ = ["current_job", "devices", "init", "shutdown"]

# Imported on first use, because they need TensorFlow and Horovod.
_SOURCES = {"current_job": "job", "devices": "job", "init": "job", "shutdown": "job"}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES)
