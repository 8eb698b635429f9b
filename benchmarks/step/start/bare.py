"""Opens a store and a table, trains a step and reads it, by ctypes alone."""

from __future__ import annotations

import sys

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.initializers import Uniform

KEYS = np.arange(1000)
DIM = 16


def main(directory: str) -> None:
    """Ends once the updated rows are read."""
    engine = Engine()
    engine.open_store(directory, "start", 0, "rank 0", 7)
    engine.open_table(OpenedTable("item", DIM, Uniform().native))
    engine.set_optimizer("item", kind=native.OptimizerKind.SGD)
    update = engine.open_update("sgd", {"item": DIM})
    update.post([KEYS], [np.ones((len(KEYS), DIM))], [0.1], samples=len(KEYS))
    engine.read({"item": DIM}, [KEYS], min_versions=[1])
    engine.close_store()


if __name__ == "__main__":
    main(sys.argv[1])
