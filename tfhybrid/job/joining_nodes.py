"""How the ranks of a job come to tables that embedding nodes own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tfhybrid import config, distributed
from tfhybrid.nodes.engine import NodesEngine
from tfhybrid.nodes.joining import NodeLinks, begin, find_nodes
from tfhybrid.nodes.node_calls import NodeCalls
from tfhybrid.nodes.node_options import parsed_address, read_token


@dataclasses.dataclass(frozen=True)
class OnNodes:
    """The tables' place, as one rank knows it.

    Args:
        engine: Of this rank.
        links: What it connects to the nodes by.
    """

    engine: NodesEngine
    links: NodeLinks


def join(job: str, hosts: Sequence[int], *, resumes: bool) -> OnNodes | None:
    """Joins the nodes that `TFHYBRID_NODES` names, if it does; every rank must call it.

    Args:
        job: Its name.
        hosts: The host of each rank.
        resumes: Whether the next run of the job shall find its tables.

    Raises:
        ConfigError: On all ranks: they name different nodes.
        StoreError: On all ranks: the nodes cannot be joined.
    """
    named = config.nodes()
    distributed.check_same({"TFHYBRID_NODES": None if named is None else named[0]})
    if named is None:
        return None
    address, token = parsed_address(named[0]), read_token(named[1])
    name = distributed.process()
    silence = config.silence_seconds()
    asks = distributed.rank() == 0
    found = distributed.together(lambda: find_nodes(address, token, name) if asks else None)
    nodes = distributed.broadcast_object(found)

    def first() -> NodeCalls | None:
        return begin(nodes, token, name, silence, job, hosts, resumes=resumes) if asks else None

    calls = distributed.together(first)
    host = hosts[distributed.rank()]
    engine = NodesEngine(hosts, host, len(nodes.names), calls)
    leads = distributed.local_rank() == 0
    links = NodeLinks(engine, nodes, token, name, silence, leads=leads, metadata=address)
    return OnNodes(engine, links)
