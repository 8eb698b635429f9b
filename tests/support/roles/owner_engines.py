"""Embedding nodes, and trainers that own nothing, as engines of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.core.sharded_hosts import link
from tests.support.core.sharded_tables import ADAGRAD, INITIALIZER, TABLES
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose, PlacementKind
from tfhybrid.core.opened_table import OpenedTable

BY_KEY = (PlacementKind.BY_KEY, 0)


@contextlib.contextmanager
def opened(
    directory: Path,
    trainers: int,
    nodes: int,
    placements: Sequence[tuple[PlacementKind, int]] = (BY_KEY, BY_KEY),
    purposes: Sequence[LinkPurpose] = tuple(LinkPurpose),
) -> Iterator[list[Engine]]:
    """Engines of trainers with a rank each, then those of nodes; no nodes: a run without roles."""
    engines = [Engine(range(trainers), host, nodes) for host in range(trainers + nodes)]
    for host, engine in enumerate(engines):
        (directory / str(host)).mkdir()
        engine.open_store(str(directory / str(host)), "job", 0, f"host {host}", 7)
    try:
        for reader in engines[:trainers]:
            for owner in engines:
                for purpose in purposes:
                    if owner is not reader:
                        link(reader, owner, purpose, "host")
        for node in engines[trainers:]:
            link(node, engines[0], LinkPurpose.UPDATES, "host")  # who decides hears what it staged
        for engine in engines:
            for (name, dim), placement in zip(TABLES.items(), placements, strict=True):
                opened = OpenedTable(name, dim, INITIALIZER.native, placement=placement)
                engine.open_table(opened)
                engine.set_optimizer(name, **ADAGRAD)
        yield engines
    finally:
        for engine in engines:
            engine.close_store()
