"""tfhybrid: trains models whose embedding tables dwarf everything else.

One copy of the tables per host, in shared memory; synchronous, exact updates over Horovod.

TensorFlow and Horovod are imported at the first use of a name that needs them. So the command line
starts quickly, and works without them.
"""

from typing import TYPE_CHECKING

from tfhybrid._deprecated import moved_names
from tfhybrid._lazy import lazy
from tfhybrid._version import __version__
from tfhybrid.settings import quiet_libraries, set_horovod_defaults

set_horovod_defaults()  # Horovod may start before any of the names below is used
quiet_libraries()

if TYPE_CHECKING:
    from tfhybrid import (
        callbacks,
        checkpoint,
        data,
        errors,
        export,
        features,
        initializers,
        layers,
        metrics,
        models,
        optimizers,
        serving,
        stream,
    )
    from tfhybrid.announcing import announce, pass_stats
    from tfhybrid.config import TableConfig
    from tfhybrid.config.file_tier import FileTier
    from tfhybrid.config.placement import Replicated, Sharded
    from tfhybrid.config.row_policy import Admission, Eviction
    from tfhybrid.distributed import cross_rank, cross_size, local_rank, local_size, rank, size
    from tfhybrid.job import devices, init, shutdown
    from tfhybrid.optimizers import DistributedOptimizer
    from tfhybrid.store import Table

__all__ = [
    "Admission",
    "DistributedOptimizer",
    "Eviction",
    "FileTier",
    "Replicated",
    "Sharded",
    "Table",
    "TableConfig",
    "__version__",
    "announce",
    "callbacks",
    "checkpoint",
    "cross_rank",
    "cross_size",
    "data",
    "devices",
    "errors",
    "export",
    "features",
    "init",
    "initializers",
    "layers",
    "local_rank",
    "local_size",
    "metrics",
    "models",
    "optimizers",
    "pass_stats",
    "rank",
    "serving",
    "shutdown",
    "size",
    "stream",
]

# Module of each public name. The other public names are modules themselves.
_SOURCES = {
    "Admission": "config.row_policy",
    "DistributedOptimizer": "optimizers",
    "Eviction": "config.row_policy",
    "FileTier": "config.file_tier",
    "Replicated": "config.placement",
    "Sharded": "config.placement",
    "Table": "store",
    "TableConfig": "config",
    "announce": "announcing",
    "cross_rank": "distributed",
    "cross_size": "distributed",
    "devices": "job",
    "init": "job",
    "local_rank": "distributed",
    "local_size": "distributed",
    "pass_stats": "announcing",
    "rank": "distributed",
    "shutdown": "job",
    "size": "distributed",
}
_MODULES = {
    *("callbacks", "checkpoint", "config", "data", "distributed", "errors", "export"),
    *("features", "initializers", "layers", "metrics", "models", "ops", "optimizers", "serving"),
    *("settings", "store", "stream"),
}

if not TYPE_CHECKING:  # a type checker would believe that every name exists
    __getattr__, __dir__ = lazy(__name__, _SOURCES, _MODULES)
    __getattr__ = moved_names(__getattr__, RecordFile="tfhybrid.checkpoint.RecordFile")
