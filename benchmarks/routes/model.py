"""A model of the bytes that come to a host and of the seconds of a step, H hosts of R ranks.

docs/several_hosts.md has it in words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

ALLGATHER, OWNER_REDUCE = "host_allgather", "owner_reduce"


@dataclasses.dataclass(frozen=True)
class Keys:
    """Distinct keys of a step.

    Args:
        rank: Of one rank.
        host: Of one host.
        union: Of all hosts.
        dim: Columns of an embedding.
        gradient_bytes: Of one number of a gradient on the wire.
    """

    rank: float
    host: float
    union: float
    dim: int
    gradient_bytes: int = 4

    @property
    def message_bytes(self) -> int:
        """Bytes of a key in a message: itself, its number of ranks, its gradient."""
        return 8 + 2 + self.gradient_bytes * self.dim


def received_bytes(keys: Keys, hosts: int, route: str) -> float:
    """Returns the bytes of gradients that come to a host in a step."""
    share = (hosts - 1) / hosts
    if route == ALLGATHER:
        return (hosts - 1) * keys.host * keys.message_bytes
    return share * (keys.host + keys.union) * keys.message_bytes


def byte_limit(keys: Keys, hosts: int) -> float:
    """Returns what a host needs at least: the union of keys, and what it merges as an owner."""
    share = (hosts - 1) / hosts
    return (keys.union + share * keys.host) * (8 + keys.gradient_bytes * keys.dim)


def dense_bytes(parameters: int, ranks: int) -> float:
    """Returns the bytes that a ring allreduce of float32 brings to a rank, and so to its host."""
    return 2 * (ranks - 1) / ranks * parameters * 4


@dataclasses.dataclass(frozen=True)
class Costs:
    """What a step is made of.

    Args:
        rank: Processor seconds of a rank's own work, its keys aside.
        rank_key: Processor seconds of looking up, and summing the gradients of, one of its keys.
        key: Processor seconds of merging or applying one key.
        byte: Seconds of one byte on a host's link.
        cores: Of each host, or of all hosts together where `shared`.
        shared: Whether the hosts share their processors, as they do on one machine.
    """

    rank: float
    rank_key: float
    key: float
    byte: float
    cores: int
    shared: bool = False


@dataclasses.dataclass(frozen=True)
class Step:
    """A step whose time is asked for.

    Args:
        keys: Of its batches.
        hosts: Number of them.
        ranks: Of each host.
        route: Of the gradients between hosts.
        parameters: Dense ones.
    """

    keys: Keys
    hosts: int
    ranks: int
    route: str
    parameters: int

    @property
    def wire_bytes(self) -> float:
        """Bytes that come to a host."""
        dense = dense_bytes(self.parameters, self.hosts * self.ranks)
        return received_bytes(self.keys, self.hosts, self.route) + dense

    @property
    def host_keys(self) -> float:
        """Keys that a host's leader merges or applies, each as often as it does."""
        keys = self.keys
        merged = self.hosts * keys.host
        if self.route == OWNER_REDUCE:
            merged = keys.host + keys.union
        return self.ranks * keys.rank + merged + keys.union

    def shares(self, costs: Costs) -> tuple[float, float, float]:
        """Returns by what `rank`, `rank_key` and `key` go into the step's seconds."""
        busy = self.hosts if costs.shared else 1
        busy /= min(costs.cores, busy * self.ranks)
        return busy * self.ranks, busy * self.ranks * self.keys.rank, busy * self.host_keys

    def seconds(self, costs: Costs) -> float:
        """Returns the seconds of the step."""
        parts = zip(self.shares(costs), (costs.rank, costs.rank_key, costs.key), strict=True)
        return sum(share * cost for share, cost in parts) + self.wire_bytes * costs.byte


def fit(costs: Costs, steps: Sequence[Step], seconds: Sequence[float]) -> Costs:
    """Returns the costs of processors that fit measured steps best, by least squares."""
    shares = [step.shares(costs) for step in steps]
    rest = [
        measured - step.wire_bytes * costs.byte
        for step, measured in zip(steps, seconds, strict=True)
    ]
    (rank, rank_key, key), *_ = np.linalg.lstsq(np.array(shares), np.array(rest), rcond=None)
    return dataclasses.replace(costs, rank=float(rank), rank_key=float(rank_key), key=float(key))
