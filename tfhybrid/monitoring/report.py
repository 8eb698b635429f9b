"""Reports on the stores of a host, for processes outside the jobs.

This module needs neither TensorFlow nor Horovod.
"""

from __future__ import annotations

import dataclasses
import os

from tfhybrid._deprecated import renamed_attributes
from tfhybrid.core import native
from tfhybrid.core.native import OptimizerKind, RankState


@dataclasses.dataclass(frozen=True)
class RankReport:
    """A rank of this host.

    Attributes:
        local_rank: Number of the rank on this host, from 0.
        state: State of its process.
        description: Text of the rank about itself, such as its process id.
    """

    local_rank: int
    state: RankState
    description: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSize:
    """Size of a table on this host. Bytes are those reserved in shared memory.

    Args:
        rows: Number of rows.
        version: Number of updates applied.
        chunks: Number of blocks of rows.
        index_slots: Capacity of the index, in keys.
        embedding_bytes: Bytes of keys and embeddings.
        state_bytes: Bytes of optimizer state.
        history_bytes: Bytes of row histories, if the table has admission or eviction.
        index_bytes: Bytes of the index.
        bytes: Total bytes.
        file_bytes: Bytes of rows in files on a disk. This and the following fields are 0 for a
            table in memory.
        cache_bytes: Bytes of the files' cache in shared memory, part of `bytes`.
        cache_hits: Rows that updates found in the cache, since the table was created or cleared.
        cache_misses: Rows that updates read from the files, since then.
        written_rows: Rows that were written to the files, since then.
    """

    rows: int
    version: int
    chunks: int
    index_slots: int
    embedding_bytes: int
    state_bytes: int
    history_bytes: int
    index_bytes: int
    bytes: int
    file_bytes: int
    cache_bytes: int
    cache_hits: int
    cache_misses: int
    written_rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableReport(TableSize):
    """A table of a store.

    Attributes:
        name: Name of the table.
        problem: Reason why the table cannot be read; empty if it can be read. With a problem, all
            fields except `name` are unknown.
        dim: Length of an embedding.
        optimizer: Name of the optimizer in lower case, or "none".
        evicted: Number of rows evicted since the job began.
    """

    name: str
    problem: str
    dim: int
    optimizer: str
    evicted: int

    @property
    def added(self) -> int:
        """Number of rows that were added since the job began, by training or by loading."""
        return self.rows + self.evicted


@renamed_attributes(asked="requested")
@dataclasses.dataclass(frozen=True, kw_only=True)
class PassReport:
    """The passes of this host's ranks: the fast tier of its sharded tables.

    Args:
        standing: Number of open passes now.
        rows: Number of rows in the open passes.
        bytes: Shared memory of the open passes.
        announced: Number of passes announced since the job began. The following fields count since
            then too.
        hits: Distinct keys of lookups that a pass contained.
        misses: Distinct keys of lookups that no open pass of the table contained. They were fetched
            from their owners.
        requested: Rows requested from owners.
        copied: Rows copied from another pass of this host.
        fetched: Rows received after a request.
        refreshed: Rows received because an update had changed them.
        received_bytes: Bytes of received rows.
        written: Rows that updates wrote back to this host as their owner.
    """

    standing: int = 0
    rows: int = 0
    bytes: int = 0
    announced: int = 0
    hits: int = 0
    misses: int = 0
    requested: int = 0
    copied: int = 0
    fetched: int = 0
    refreshed: int = 0
    received_bytes: int = 0
    written: int = 0


@dataclasses.dataclass
class StoreReport:
    """The store of a job on this host.

    Attributes:
        job: Name of the job.
        directory: Directory of the store.
        bytes: Size of the store in shared memory.
        problem: Reason why the store cannot be read; empty if it can be read. With a problem, the
            tables are unknown.
        ranks: Ranks of this host.
        tables: Tables of the store.
        passes: Passes of the ranks.
    """

    job: str
    directory: str
    bytes: int
    problem: str
    ranks: list[RankReport] = dataclasses.field(default_factory=list)
    tables: list[TableReport] = dataclasses.field(default_factory=list)
    passes: PassReport = dataclasses.field(default_factory=PassReport)

    @property
    def living(self) -> bool:
        """Whether a process of the job is alive."""
        return any(rank.state is RankState.LIVING for rank in self.ranks)


def report_stores(directory: str | os.PathLike[str]) -> list[StoreReport]:
    """Returns this user's stores in a directory, of running and dead jobs, sorted by name.

    Args:
        directory: Directory of stores, such as `settings.shm_directory()`. The list is empty if it
            does not exist.

    Example:

    >>> report_stores("/nowhere")
    []
    """
    stores: list[StoreReport] = []
    for kind, *fields in native.report_stores(os.fspath(directory)):
        if kind == "store":
            job, path, size, problem = fields
            passes = PassReport(**native.report_passes(path))
            stores.append(StoreReport(job, path, int(size), problem, passes=passes))
        elif kind == "rank":
            rank, state, description = fields
            report = RankReport(int(rank), RankState(int(state)), description.split("\n")[0])
            stores[-1].ranks.append(report)
        else:
            stores[-1].tables.append(_table(fields))
    return stores


def _table(fields: list[str]) -> TableReport:
    name, problem, dim, optimizer, *numbers = fields
    kind = int(optimizer)
    return TableReport(
        name=name,
        problem=problem,
        dim=int(dim),
        optimizer=OptimizerKind(kind).name.lower() if kind in list(OptimizerKind) else "none",
        **dict(zip(native.STATS, map(int, numbers), strict=False)),  # ends at `evicted`
    )
