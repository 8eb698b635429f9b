"""Plan of the shards that should move to another embedding node."""

from __future__ import annotations

import dataclasses

from tfhybrid.cluster.membership import OWNING_ROLE, NodeState, View


@dataclasses.dataclass(frozen=True)
class Move:
    """Planned move of one shard of the slots to another node.

    Args:
        shard: Index of the shard in `View.owners`.
        origin: Name of the node that owns the shard now.
        to: Name of the node that should own it.
    """

    shard: int
    origin: str
    to: str


def moves(view: View) -> list[Move]:
    """Returns the moves that empty draining nodes and balance the ready ones, in order.

    A lost node keeps its shards, because only its memory has their rows. Without a ready node
    nothing moves.

    Args:
        view: Snapshot of the cluster.

    Returns:
        The moves that are still to be made; empty if the shards are balanced.
    """
    states = {name: node.state for name, node in view.nodes.items() if node.role == OWNING_ROLE}
    shards = {name: 0 for name in sorted(states) if states[name] == NodeState.READY}
    if not shards:
        return []
    owners, planned = list(view.owners), []
    for owner in owners:
        if owner in shards:
            shards[owner] += 1

    def move(shard: int) -> None:
        origin, to = owners[shard], min(shards, key=lambda name: shards[name])
        planned.append(Move(shard, origin, to))
        owners[shard] = to
        shards[to] += 1
        if origin in shards:
            shards[origin] -= 1

    for shard in range(len(owners)):
        if states.get(owners[shard]) == NodeState.DRAINING:
            move(shard)
    while max(shards.values()) - min(shards.values()) > 1:
        fullest = max(shards, key=lambda name: shards[name])
        move(len(owners) - 1 - owners[::-1].index(fullest))
    return planned
