"""`placement="auto"`: a table is on every host if it fits there, else spread over all hosts."""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import TYPE_CHECKING

from tfhybrid.config import TableConfig
from tfhybrid.config.placement import REPLICATED, Placement, Sharded
from tfhybrid.store.table_memory import TableShape, bytes_of

if TYPE_CHECKING:
    from tfhybrid.job.job import Job

_log = logging.getLogger("tfhybrid.store")

# Usable fraction of the free memory: messages, checkpoints and uneven hosts need some of it too.
USABLE = 0.8
_VECTORS = 2  # state vectors of a row while the optimizer is unknown: those of Adam
_GB = 1e9


@dataclasses.dataclass(frozen=True)
class Choice:
    """The chosen placement of a table.

    Args:
        placement: The placement.
        bytes: Peak memory of the table on a host.
        replicated_bytes: Peak memory of the table on a host if every host had all rows.
    """

    placement: Placement
    bytes: int
    replicated_bytes: int


def choose(shape: TableShape, hosts: int, room: int) -> Choice:
    """Chooses the placement of a table: sharded if there are several hosts and one cannot hold it.

    Args:
        shape: Shape of the whole table.
        hosts: Number of hosts.
        room: Bytes available for tables on the host with the least memory.

    Returns:
        The placement, with the bytes per host under it, and the bytes per host if replicated.

    Example:

    >>> shape = TableShape(rows=100_000_000, dim=16, state_floats=32)
    >>> choose(shape, hosts=4, room=8 * 10**9).placement
    Sharded(by='key')
    """
    whole = bytes_of(shape).peak
    if hosts == 1 or whole <= room:
        return Choice(REPLICATED, whole, whole)
    shard = dataclasses.replace(shape, rows=math.ceil(shape.rows / hosts))
    return Choice(Sharded(), bytes_of(shard).peak, whole)


def settled(name: str, config: TableConfig, job: Job) -> TableConfig:
    """Returns the settings with `"auto"` replaced by a placement; equal on all ranks.

    Tables are placed in the order in which they are created. Each one reduces the memory that
    remains for the next, in `job.room`.

    Args:
        name: Name of the table, for the log.
        config: Settings of the table. `"auto"` requires `expected_rows`.
        job: The job that creates the table.

    Raises:
        ConfigError: The placement is `"auto"`, and the optimizer is unknown.
    """
    if config.placement != "auto":
        return config
    assert config.expected_rows is not None
    hosts = len(set(job.hosts))
    shape = TableShape(
        config.expected_rows,
        config.dim,
        _state_floats(config),
        bool(config.policy),
        config.storage.cache_bytes if config.storage else 0,
    )
    room = int(USABLE * job.room.bytes) - job.room.planned
    choice = choose(shape, hosts, room)
    job.room.plan(choice.bytes)
    _log.info(
        "Table '%s': placement='auto' chose %s. Its %s expected rows take %.3f GB if replicated; "
        "the smallest of %d host(s) has room for %.3f GB.",
        *(name, choice.placement, f"{shape.rows:,}", choice.replicated_bytes / _GB, hosts),
        max(0, room) / _GB,
    )
    return dataclasses.replace(config, placement=choice.placement)


def _state_floats(config: TableConfig) -> int:
    if config.optimizer is None:
        return _VECTORS * config.dim
    from tfhybrid.config import table_optimizers  # imports Keras

    return math.prod(table_optimizers.get(config.optimizer).state_shape(config.dim))
