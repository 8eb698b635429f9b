"""Reports on the stores of a host, for processes outside their jobs.

This module needs neither TensorFlow nor Horovod.
"""

from __future__ import annotations

import dataclasses
import os

from tfhybrid.core import native
from tfhybrid.core.native import OptimizerKind, RankState
from tfhybrid.store.table_stats import TableSize


@dataclasses.dataclass(frozen=True)
class RankReport:
    """A rank of this host: the state of its process, and its description of itself."""

    local_rank: int
    state: RankState
    description: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableReport(TableSize):
    """A table; `evicted` counts from the start of the job.

    If `problem` is not empty, the other fields are unknown.
    """

    name: str
    problem: str
    dim: int
    optimizer: str
    evicted: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassReport:
    """The passes of this host's ranks: the fast tier of its sharded tables.

    Args:
        standing: Passes that stand now.
        rows: In them.
        bytes: What they take in shared memory.
        announced: Passes since the job began. All that follows counts since then.
        hits: Distinct keys of lookups that a pass had.
        misses: Distinct keys that an open pass of their table had not: they were fetched.
        asked: Rows that owners were asked for.
        copied: Rows that another pass of the host had.
        fetched: Rows that came because they were asked for.
        refreshed: Rows that came because an update had changed them.
        received_bytes: Of the rows that came.
        written: Rows that updates wrote back here, on their owner.
    """

    standing: int = 0
    rows: int = 0
    bytes: int = 0
    announced: int = 0
    hits: int = 0
    misses: int = 0
    asked: int = 0
    copied: int = 0
    fetched: int = 0
    refreshed: int = 0
    received_bytes: int = 0
    written: int = 0


@dataclasses.dataclass
class StoreReport:
    """A job's store. If `problem` is not empty, its tables are unknown."""

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
    """Returns this user's stores in a directory, of running and of dead jobs, by name.

    Args:
        directory: The directory of the stores; for this process, `settings.shm_directory()`.

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
        **dict(zip(native.STATS, map(int, numbers), strict=False)),  # up to `evicted`
    )
