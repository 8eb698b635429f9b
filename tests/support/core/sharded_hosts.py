"""Hosts with sharded tables, as engines of this process, all connected."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose, PlacementKind
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.initializers import Uniform

Placements = Sequence[tuple[PlacementKind, int]]


def link(reader: Engine, owner: Engine, purpose: LinkPurpose, what: str = "rank") -> None:
    """Connects two engines."""
    mine, its = socket.socketpair()
    reader.connect_owner(owner.host, purpose, mine, f"{what} {owner.host}")
    owner.serve_owner(reader.host, purpose, its, f"{what} {reader.host}")


class Hosts:
    """A context with an engine per rank.

    Args:
        directory: Where stores and files lie.
        ranks: The host of each rank.
        tables: Name and dim of each.
        optimizer: Fields of `native.OptimizerConfigStruct`.
        policy: Fields of `native.RowPolicyStruct`, if rows are ever removed.
        cache_bytes: With it rows lie in files, and so many bytes of them in memory.
        placements: Of each table; by default all are sharded by key.
    """

    def __init__(
        self,
        directory: Path,
        ranks: Sequence[int],
        tables: Mapping[str, int],
        optimizer: Mapping[str, float],
        policy: dict[str, float] | None = None,
        cache_bytes: int = 0,
        placements: Placements | None = None,
    ) -> None:
        self._directory = directory
        self._tables = tables
        self._optimizer = optimizer
        self._policy = policy
        self._cache_bytes = cache_bytes
        self._placements = placements or [(PlacementKind.BY_KEY, 0)] * len(tables)
        self._ranks = list(ranks)
        self.engines = [Engine(self._ranks, host) for host in self._ranks]

    def __enter__(self) -> list[Engine]:
        for rank, engine in enumerate(self.engines):
            store = self._directory / str(engine.host)
            store.mkdir(exist_ok=True)
            engine.open_store(str(store), "job", self._local(rank), f"rank {rank}", 7)
        try:
            for rank in range(len(self.engines)):
                self._connect(rank)
            for rank in range(len(self.engines)):
                self._open_tables(rank)
        except BaseException:
            self._close()
            raise
        return self.engines

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _local(self, rank: int) -> int:
        return rank - self._ranks.index(self._ranks[rank])

    def _connect(self, reader: int) -> None:
        for host in sorted(set(self._ranks) - {self._ranks[reader]}):
            owner = self._ranks.index(host)
            for purpose in LinkPurpose:
                if purpose != LinkPurpose.READS and self._local(reader) != 0:
                    continue
                link(self.engines[reader], self.engines[owner], purpose)

    def _open_tables(self, rank: int) -> None:
        engine = self.engines[rank]
        files = ("", 0)
        if self._cache_bytes:
            files = (str(self._directory / f"files-{engine.host}"), self._cache_bytes)
            Path(files[0]).mkdir(exist_ok=True)
        for (name, dim), placement in zip(self._tables.items(), self._placements, strict=True):
            engine.open_table(
                OpenedTable(
                    name,
                    dim,
                    Uniform().native,
                    policy=self._policy or {},
                    placement=placement,
                    files=files,
                )
            )
            if self._local(rank) == 0:
                engine.set_optimizer(name, **self._optimizer)

    def _close(self) -> None:
        for engine in reversed(self.engines):
            engine.close_store()
