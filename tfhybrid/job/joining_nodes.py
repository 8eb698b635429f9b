"""Gives the ranks of a job access to tables that embedding nodes own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from tfhybrid import distributed, settings
from tfhybrid.nodes.engine import NodesEngine
from tfhybrid.nodes.joining import Joined, find_and_begin
from tfhybrid.nodes.moving import Mover
from tfhybrid.nodes.node_calls import NodeCalls
from tfhybrid.nodes.node_links import NodeLinks
from tfhybrid.nodes.node_options import parsed_address, read_token
from tfhybrid.nodes.tls import Tls


@dataclasses.dataclass(frozen=True)
class OnNodes:
    """One rank's access to the tables.

    Args:
        engine: Of this rank.
        links: What it connects to the nodes by.
        mover: What moves rows from node to node; `None` on ranks other than 0.
    """

    engine: NodesEngine
    links: NodeLinks
    mover: Mover | None


def named() -> tuple[str, Path] | None:
    """Returns the nodes that `TFHYBRID_NODES` names, as of `settings.nodes`; of every rank.

    Raises:
        ConfigError: On all ranks: they name different nodes, or no token.
    """
    found = distributed.together(settings.nodes)
    distributed.check_same({"TFHYBRID_NODES": None if found is None else found[0]})
    return found


def join(
    nodes_named: tuple[str, Path], job: str, hosts: Sequence[int], tls: Tls | None, *, resumes: bool
) -> OnNodes:
    """Joins the nodes that `named` returned; every rank must call it.

    Args:
        nodes_named: Address of the metadata node and the file of its token.
        job: Its name.
        hosts: The host of each rank.
        tls: What encrypts the connections; `None` for none.
        resumes: Whether the next run of the job shall find its tables.

    Raises:
        ConfigError: On all ranks: the address or the token cannot be used.
        StoreError: On all ranks: the nodes cannot be joined.
    """
    address, token = distributed.together(
        lambda: (parsed_address(nodes_named[0]), read_token(nodes_named[1]))
    )
    name = distributed.process()
    silence = settings.silence_seconds()
    asks = distributed.rank() == 0

    def first() -> tuple[Joined, NodeCalls] | None:
        if not asks:
            return None
        return find_and_begin(address, token, name, silence, job, hosts, resumes=resumes, tls=tls)

    begun = distributed.together(first)
    nodes = distributed.broadcast_object(None if begun is None else begun[0])
    calls = None if begun is None else begun[1]
    host = hosts[distributed.rank()]
    engine = NodesEngine(hosts, host, len(nodes.names), calls)
    leads = distributed.local_rank() == 0
    links = NodeLinks(engine, nodes, token, name, silence, leads=leads, tls=tls, metadata=address)
    mover = None
    if asks:
        mover = Mover(engine, address, token, name, silence, job, resumes=resumes, tls=tls)
    return OnNodes(engine, links, mover)


def follow(joined: OnNodes) -> int:
    """Moves rows from nodes that drain, and to nodes that have come; every rank must call it.

    Between two steps. The ranks wait until all updates are applied and the rows are copied. Batches
    of data nodes that a rank has already stay as they are: the new nodes get their keys.

    Args:
        joined: Of this rank.

    Returns:
        How many shares have moved.

    Raises:
        TfhybridError: On all ranks: an update has failed, a new node cannot be reached, or a data
            node is gone.
    """
    mover, links = joined.mover, joined.links
    planned = distributed.broadcast_object([] if mover is None else mover.planned())
    if not planned:
        return 0

    def settle() -> None:
        links.settle()
        joined.engine.wait_for_all()

    with links.paused():
        distributed.together(settle)
        before = links.nodes
        moved = distributed.together(lambda: None if mover is None else mover.move(before, planned))
        nodes = distributed.broadcast_object(moved)
        distributed.together(lambda: links.follow(nodes))
    return sum(one != other for one, other in zip(before.names, nodes.names, strict=True))
