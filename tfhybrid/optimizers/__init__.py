"""Optimizers for tables, and the wrapper that makes a Keras optimizer update them."""

from tfhybrid._deprecated import moved_names
from tfhybrid.config.table_optimizers import (
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Ftrl,
    RateFactor,
    RMSprop,
    RowAdagrad,
    get,
)
from tfhybrid.optimizers.distributed_optimizer import DistributedOptimizer

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
    "get",
]

__getattr__ = moved_names(
    SparseOptimizer="tfhybrid.config.table_optimizers.SparseOptimizer",
    twin="tfhybrid.optimizers.twin.twin",
)
