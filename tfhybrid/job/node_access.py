"""Start of a job whose tables embedding nodes own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfhybrid import distributed, settings
from tfhybrid.cluster.node_options import read_token
from tfhybrid.cluster.registration import ClusterMember
from tfhybrid.embedding_nodes.moving import Mover
from tfhybrid.embedding_nodes.node_calls import NodeCalls
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.embedding_nodes.node_session import JobOnNodes, NodeSession, find_and_begin
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.rpc.address import parsed_address
from tfhybrid.rpc.tls import Tls


class NodesOfRank(NamedTuple):
    """Access of one rank to the embedding nodes of its job.

    Args:
        engine: Engine of this rank.
        links: Links of this rank to the nodes.
        mover: Mover of rows between nodes; `None` on ranks other than 0.
    """

    engine: NodesEngine
    links: NodeLinks
    mover: Mover | None


def named() -> tuple[str, Path] | None:
    """Returns the metadata node's address and its token file, from `TFHYBRID_NODES`.

    Every rank must call it.

    Returns:
        Address and token file, or `None` if the variable is not set.

    Raises:
        ConfigError: The ranks name different nodes, or this rank names no token file.
        StoreError: Another rank names no token file.
    """
    address = distributed.together(settings.nodes)
    distributed.check_same({"TFHYBRID_NODES": None if address is None else address[0]})
    return address


def connect(
    nodes_named: tuple[str, Path], job: str, hosts: Sequence[int], tls: Tls | None, *, resumes: bool
) -> NodesOfRank:
    """Starts the job on the embedding nodes and returns this rank's access to them.

    Every rank must call it. Rank 0 talks to the nodes; no rank connects for rows yet.

    Args:
        nodes_named: Address of the metadata node and its token file, from `named`.
        job: Name of the job.
        hosts: Number of the host of each rank.
        tls: TLS relay of this rank; `None` if connections are not encrypted.
        resumes: True if the next run of the job must find its tables.

    Raises:
        ConfigError: The address or the token is invalid.
        StoreError: On all ranks: the nodes cannot be reached, are not ready, or refuse the job.
    """
    address, token = distributed.together(
        lambda: (parsed_address(nodes_named[0]), read_token(nodes_named[1]))
    )
    member = ClusterMember(address, token, distributed.process(), settings.silence_seconds(), tls)
    of_job = JobOnNodes(job, hosts, resumes)
    asks = distributed.rank() == 0

    def first() -> tuple[NodeSession, NodeCalls] | None:
        if not asks:
            return None
        return find_and_begin(member, of_job)

    begun = distributed.together(first)
    nodes = distributed.broadcast_object(None if begun is None else begun[0])
    calls = None if begun is None else begun[1]
    host = hosts[distributed.rank()]
    engine = NodesEngine(hosts, host, len(nodes.names), calls)
    leads = distributed.local_rank() == 0
    links = NodeLinks(engine, nodes, member, leads=leads)
    return NodesOfRank(engine, links, Mover(engine, member, of_job) if asks else None)
