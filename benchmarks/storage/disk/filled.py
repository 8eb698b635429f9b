"""A table with all rows, in memory or in files, for the sides that are engines alone."""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.storage.disk.batches import INITIAL, record_bytes
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import OptimizerKind, PlacementKind
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.initializers import Uniform

NAME, SLOT_BYTES, BLOCK = "item", 16, 65_536


def fill(engine: Engine, options: argparse.Namespace, hosts: int = 1) -> None:
    """Opens the table with an optimizer, and writes the rows that this host owns.

    Args:
        engine: Engine of this host, with its store open.
        options: Those of a side: rows, dim, share, path, storage.
        hosts: Number of hosts, which share rows and cache.
    """
    files = ("", 0)
    if options.storage == "files":
        slots = int(options.share * options.rows / hosts)
        files = (options.path, slots * (record_bytes(options.dim) + SLOT_BYTES))
    kind = PlacementKind.BY_KEY if hosts > 1 else PlacementKind.REPLICATED
    engine.open_table(
        OpenedTable(NAME, options.dim, Uniform().native, files=files, placement=(kind, 0))
    )
    engine.set_optimizer(
        NAME, kind=OptimizerKind.ADAGRAD, initial_accumulator_value=float(INITIAL), epsilon=1e-7
    )
    writer = TableWriter(engine, NAME, options.dim, (1, options.dim), None)
    for first in range(0, options.rows, BLOCK):
        keys = np.arange(first, min(first + BLOCK, options.rows))
        if hosts > 1:
            keys = keys[engine.owned(NAME, keys)]
        writer.write_rows(RowBlock(keys, np.full((len(keys), options.dim), 0.01, np.float32), None))
