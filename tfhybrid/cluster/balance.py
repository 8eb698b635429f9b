"""Plan of the shards that should move to another embedding node."""

from __future__ import annotations

import dataclasses

from tfhybrid.cluster.membership import OWNING_ROLE, NodeState, View


@dataclasses.dataclass(frozen=True)
class Move:
    """Planned move of one shard of the slots to another node.

    Args:
        share: Index of the shard in `View.owners`.
        origin: Name of the node that owns the shard now.
        to: Name of the node that should own it.
    """

    share: int
    origin: str
    to: str


def moves(view: View) -> list[Move]:
    """Returns the moves that empty draining nodes and balance the ready ones, in order.

    A lost node keeps its shards, because only its memory has their rows. Without a ready node
    nothing moves.
    """
    states = {name: node.state for name, node in view.nodes.items() if node.role == OWNING_ROLE}
    shares = {name: 0 for name in sorted(states) if states[name] == NodeState.READY}
    if not shares:
        return []
    owners, planned = list(view.owners), []
    for owner in owners:
        if owner in shares:
            shares[owner] += 1

    def move(share: int) -> None:
        origin, to = owners[share], min(shares, key=lambda name: shares[name])
        planned.append(Move(share, origin, to))
        owners[share] = to
        shares[to] += 1
        if origin in shares:
            shares[origin] -= 1

    for share in range(len(owners)):
        if states.get(owners[share]) == NodeState.DRAINING:
            move(share)
    while max(shares.values()) - min(shares.values()) > 1:
        fullest = max(shares, key=lambda name: shares[name])
        move(len(owners) - 1 - owners[::-1].index(fullest))
    return planned
