"""A model of the bytes that come to a host and of the seconds of a step, H hosts of R ranks.

docs/several_hosts.md has it in words.
"""

from __future__ import annotations

import dataclasses

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
        rank: Processor seconds of a rank's own work.
        key: Processor seconds of merging or applying one key.
        byte: Seconds of one byte on a host's link.
        cores: Of each host, or of all hosts together where `shared`.
        shared: Whether the hosts share their processors, as they do on one machine.
    """

    rank: float
    key: float
    byte: float
    cores: int
    shared: bool = False


def work(keys: Keys, hosts: int, ranks: int, route: str) -> tuple[float, float]:
    """Returns the ranks, and the keys merged or applied, whose work falls to one host."""
    within = ranks * keys.rank if ranks > 1 or hosts > 1 else 0.0
    between = 0.0
    if hosts > 1:
        between = hosts * keys.host if route == ALLGATHER else keys.host + keys.union
    return ranks, within + between + keys.union


def step_seconds(
    costs: Costs, keys: Keys, hosts: int, ranks: int, route: str, dense: float
) -> float:
    """Returns the seconds of a step.

    Args:
        costs: Of its parts.
        keys: Of its batches.
        hosts: Number of them.
        ranks: Of each.
        route: Of the gradients.
        dense: Bytes of dense gradients that come to a host.
    """
    rank_count, key_count = work(keys, hosts, ranks, route)
    own = rank_count * costs.rank + key_count * costs.key
    busy = hosts if costs.shared else 1
    processors = min(costs.cores, busy * ranks)
    wire = (received_bytes(keys, hosts, route) + dense) * costs.byte if hosts > 1 else 0.0
    return busy * own / processors + wire
