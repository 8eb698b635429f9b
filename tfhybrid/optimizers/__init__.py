"""Optimizers for tables, and the wrapper that makes a Keras optimizer update them."""

from tfhybrid.config.table_optimizers import (
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Ftrl,
    RateFactor,
    RMSprop,
    RowAdagrad,
    SparseOptimizer,
    get,
)
from tfhybrid.optimizers.distributed_optimizer import DistributedOptimizer
from tfhybrid.optimizers.twin import twin

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "DistributedOptimizer",
    "Ftrl",
    "RMSprop",
    "RateFactor",
    "RowAdagrad",
    "SparseOptimizer",
    "get",
    "twin",
]
