"""Request of a trainer for a data set that data nodes read, and description of the trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class DataRequest:
    """Request of a trainer for a data set that data nodes read.

    Args:
        function: Name of the function of the script that makes the data set.
        arguments: Arguments of that function after the shard, of types that `json.dumps` accepts.
        divide_by: Division of the work among data nodes, `BY_BATCH` or `BY_FILE` (see `Reading`).
        trains: Whether the batches are trained.
        delivery: Delivery of the rows: `PULL`, `NOTIFY` or `PUSH` (see `SentKeys`).
        lag: Number of batches that owners hold up to and including the last one that was looked
            up. `staleness` is added to it.
        ahead: Maximum number of batches that are requested before they are needed; at least
            `staleness` + 1 is used.
        max_bytes: Maximum number of bytes of requested batches and of keys that owners hold. One
            batch is requested whatever its size.
        group_by: `LABEL` for batches of one label value each; `None` (default) for batches as the
            data set has them.
        epoch: First epoch. Default 0.
        step: Number of batches of the first epoch, over all data nodes, that were trained before.
            If it is not 0 (the default), the data set is the rest of that epoch each time.
        staleness: Maximum number of updates that the rows of a batch may lack. Default 0.
        read_log: Directory for the log of the versions that were read; `None` (default) for no log.
    """

    function: str
    arguments: Mapping[str, Any]
    divide_by: str
    trains: bool
    delivery: str
    lag: int
    ahead: int
    max_bytes: int
    group_by: str | None = None
    epoch: int = 0
    step: int = 0
    staleness: int = 0
    read_log: str | None = None


@dataclasses.dataclass(frozen=True)
class Trainer:
    """A trainer, as its data sets need to know it.

    Args:
        session: Session of the job.
        rank: Rank of the trainer.
        size: Number of trainers.
        owners: Function that returns name and address of the current owner of each shard. Shards
            may move to other nodes.
        data: Names of the data nodes.
        silence: Time in seconds after which a silent node counts as lost, for the trainer and for
            data nodes.
    """

    session: str
    rank: int
    size: int
    owners: Callable[[], Sequence[tuple[str, tuple[str, int]]]]
    data: Sequence[str]
    silence: float
