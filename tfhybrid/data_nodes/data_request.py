"""Which data set a trainer wants from data nodes, and who it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A data set that a trainer wants from data nodes.

    Args:
        function: Of the script, that makes it.
        arguments: Of that function, beside the shard.
        share: `BY_BATCH` or `BY_FILE`, as of `Reading`.
        trains: Whether its batches are trained.
        join: How rows come, as of `SentKeys`.
        lag: Batches that are held behind the last one that was looked up, and `staleness` more.
        ahead: Batches that are asked for before they are needed; `staleness` + 1 at least.
        most_bytes: Of what was asked for and is held; one batch is asked for whatever its size.
        group_by: As of `Reading`.
        epoch: With which it begins.
        step: Batches of that epoch, over all data nodes, that were trained before. If there are
            any, it is the rest of that one epoch, whenever it is begun.
        staleness: How many updates the rows of a batch may lack.
        read_log: A directory for the log of what was read; `None`: no log.
    """

    function: str
    arguments: Mapping[str, Any]
    share: str
    trains: bool
    join: str
    lag: int
    ahead: int
    most_bytes: int
    group_by: str | None = None
    epoch: int = 0
    step: int = 0
    staleness: int = 0
    read_log: str | None = None


@dataclasses.dataclass(frozen=True)
class Trainer:
    """Who wants it.

    Args:
        session: Of the job.
        rank: Of the trainer.
        size: Number of trainers.
        owners: Tells name and address of the node of each share, which may move.
        data: Names of the data nodes.
        silence: Seconds after which a silent node counts as gone, for data nodes too.
    """

    session: str
    rank: int
    size: int
    owners: Callable[[], Sequence[tuple[str, tuple[str, int]]]]
    data: Sequence[str]
    silence: float
