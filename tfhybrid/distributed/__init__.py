"""Ranks, hosts and collectives. All functions are the identity in a job of one rank."""

from tfhybrid.distributed.collectives import (
    allgather,
    allgather_object,
    average,
    barrier,
    broadcast_object,
    cross_rank,
    cross_size,
    gather_messages,
    horovod_version,
    local_rank,
    local_size,
    rank,
    size,
    start,
    together,
)

__all__ = [
    "allgather",
    "allgather_object",
    "average",
    "barrier",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "gather_messages",
    "horovod_version",
    "local_rank",
    "local_size",
    "rank",
    "size",
    "start",
    "together",
]
