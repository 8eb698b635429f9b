"""Which shares of the tables should lie on another node than they do."""

from __future__ import annotations

import dataclasses

from tfhybrid.nodes.membership import OWNING_ROLE, NodeState, View


@dataclasses.dataclass(frozen=True)
class Move:
    """A share that should change its node.

    Args:
        share: Its place in `View.owners`.
        origin: The node that has it.
        to: The node that should have it.
    """

    share: int
    origin: str
    to: str


def moves(view: View) -> list[Move]:
    """Returns the moves that empty draining nodes and even out the ready ones, in order.

    A node that is lost keeps its shares: they are in its memory.
    """
    states = {name: its.state for name, its in view.nodes.items() if its.role == OWNING_ROLE}
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
