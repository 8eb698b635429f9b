"""The script of data nodes that read small batches, and what a trainer asks such a node for."""

from __future__ import annotations

from tests.support.roles.split_roles import STEPS
from tfhybrid.data_nodes.data_request import DataRequest

SCRIPT = """
from tests.support.roles import split_roles

def dataset(shard, steps):
    return split_roles.dataset((shard.rank, shard.size), steps)

def broken(shard):
    raise OSError("no such disk")
"""


def wanted(delivery: str) -> DataRequest:
    return DataRequest("dataset", {"steps": STEPS}, "batch", True, delivery, 2, 3, 1 << 20)
