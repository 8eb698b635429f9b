"""Tables with Adagrad's state, and rows for them."""

from __future__ import annotations

import numpy as np

import tfhybrid
from tfhybrid.store import RowBlock, Table

DIM = 3


def adagrad_table(name: str, storage: tfhybrid.FileTier | None = None) -> Table:
    table = Table(name, tfhybrid.TableConfig(DIM, storage=storage))
    optimizer = tfhybrid.optimizers.Adagrad()
    table.set_optimizer(optimizer.native(), optimizer.state_shape(table.dim))
    return table


def block(keys: np.ndarray | list[int]) -> RowBlock:
    """Returns rows whose embeddings and states tell their keys' places."""
    keys = np.array(keys, np.int64)
    numbers = np.arange(len(keys) * DIM, dtype=np.float32).reshape(-1, DIM)
    return RowBlock(keys, numbers, (numbers + 0.5)[:, np.newaxis])
