"""tfhybrid: training of models whose embedding tables dwarf everything else.

One copy of the tables per host, in shared memory; synchronous, exact updates over Horovod.
"""

from tfhybrid import callbacks, checkpoint, data, initializers, layers, metrics, models, optimizers
from tfhybrid._version import __version__
from tfhybrid.config import TableConfig
from tfhybrid.distributed import cross_rank, cross_size, local_rank, local_size, rank, size
from tfhybrid.optimizers import DistributedOptimizer
from tfhybrid.store import RecordFile, init, shutdown

__all__ = [
    "DistributedOptimizer",
    "RecordFile",
    "TableConfig",
    "__version__",
    "callbacks",
    "checkpoint",
    "cross_rank",
    "cross_size",
    "data",
    "init",
    "initializers",
    "layers",
    "local_rank",
    "local_size",
    "metrics",
    "models",
    "optimizers",
    "rank",
    "shutdown",
    "size",
]
