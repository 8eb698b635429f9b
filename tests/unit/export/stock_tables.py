"""Small tables, and the keys at the limits of int64."""

from __future__ import annotations

import numpy as np

import tfhybrid
from tfhybrid.store import RowBlock, Table

INT64 = np.iinfo(np.int64)
EXTREMES = np.array([0, -1, 1, INT64.min, INT64.max, INT64.min + 1, INT64.max - 1])
INITIALIZERS = {
    "zeros": tfhybrid.initializers.Zeros(),
    "constant": tfhybrid.initializers.Constant(0.25),
    "uniform": tfhybrid.initializers.Uniform(-0.5, 0.5),
    "normal": tfhybrid.initializers.Normal(1.0, 0.1),
    "truncated_normal": tfhybrid.initializers.TruncatedNormal(0.0, 0.1),
}


def table_of(keys: np.ndarray, initializer="uniform", dim: int = 5) -> Table:
    """A table with random rows for some keys."""
    table = Table("item", tfhybrid.TableConfig(dim, initializer))
    embeddings = np.random.default_rng(0).normal(size=(len(keys), dim)).astype(np.float32)
    table.writer.write_rows(RowBlock(np.asarray(keys, np.int64), embeddings, None))
    return table
