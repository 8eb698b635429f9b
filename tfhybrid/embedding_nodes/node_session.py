"""Connecting a job to embedding nodes that are up.

Rank 0 asks the metadata node for the owner of each shard, and has each owner serve the job. Then
every rank connects to the owners (`node_links`).
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Sequence
from typing import NamedTuple

from tfhybrid.cluster.membership import View
from tfhybrid.cluster.registration import ClusterMember, look_up
from tfhybrid.embedding_nodes.embedding_node import JobConnection
from tfhybrid.embedding_nodes.node_calls import NodeCalls
from tfhybrid.embedding_nodes.owned_store import ShardOfJob
from tfhybrid.errors import NameTakenError, StaleEpochError
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.peer import Peer

_READY_SECONDS = 60.0
_TRIES = 5


@dataclasses.dataclass(frozen=True)
class NodeSession:
    """Nodes of a job, as all its ranks know them.

    Args:
        session: Random name of this run of the job.
        names: Name of the embedding node that owns each shard, in the order of shards.
        addresses: Host and port of these nodes.
        allocation_epoch: Allocation epoch under which they own the shards.
        data: Names of the data nodes. Default: none.
    """

    session: str
    names: tuple[str, ...]
    addresses: tuple[tuple[str, int], ...]
    allocation_epoch: int
    data: tuple[str, ...] = ()


class JobOnNodes(NamedTuple):
    """A job, as embedding nodes need to know it.

    Args:
        name: Name of the job.
        hosts: Host of each rank.
        resumes: Whether the nodes keep their stores for the job's next run if this one dies.
            Default false.
    """

    name: str
    hosts: Sequence[int]
    resumes: bool = False


def find_nodes(member: ClusterMember) -> NodeSession:
    """Asks the metadata node for the nodes of the cluster. Only rank 0 calls it.

    Waits until all owners of shards are ready, for 60 seconds at the longest.

    Args:
        member: This process.

    Returns:
        The nodes, and a new session.

    Raises:
        StoreError: The metadata node cannot be reached, or an owner is not ready in time.
    """
    view: View = look_up(member, _READY_SECONDS)
    addresses = tuple(view.nodes[owner].address for owner in view.owners)
    return NodeSession(
        secrets.token_hex(8), view.owners, addresses, view.epoch, view.living("data")
    )


def find_and_begin(member: ClusterMember, job: JobOnNodes) -> tuple[NodeSession, NodeCalls]:
    """Finds the nodes and has them serve the job. Only rank 0 calls it.

    Tries again, five times in all, if a shard moves after the nodes were found.

    Args:
        member: This process.
        job: The job.

    Returns:
        The nodes, and the connections to call them.

    Raises:
        NameTakenError: Another job uses a node, and did not end within 10 s.
        StoreError: The metadata node or another node cannot be reached, is not ready, or is
            draining.
        StaleEpochError: Shards moved meanwhile at each of the five tries.
    """
    tries = 0
    while True:
        nodes = find_nodes(member)
        try:
            return nodes, begin(nodes, member, job)
        except StaleEpochError:
            tries += 1
            if tries == _TRIES:
                raise


def begin(
    nodes: NodeSession, member: ClusterMember, job: JobOnNodes, *, patience: float = 10.0
) -> NodeCalls:
    """Has the owner of each shard serve the job. Only rank 0 calls it.

    If it fails, no node serves the job.

    Args:
        nodes: Nodes of the job.
        member: This process.
        job: The job.
        patience: Maximum time to wait for the end of another job, in seconds, for each shard.
            Default 10.

    Returns:
        A connection for each shard, in order. The node serves the shard until the connection is
        closed.

    Raises:
        NameTakenError: Another job uses a node, and did not end within `patience`.
        StaleEpochError: A node knows another allocation epoch than `nodes`: find the nodes again.
        StoreError: A node cannot be reached, is lost meanwhile, or is draining.
    """
    callers: list[Caller] = []
    try:
        for shard, (node, address) in enumerate(zip(nodes.names, nodes.addresses, strict=True)):
            peer = member.peer(node, address)
            callers.append(peer.caller(Handshake(Purpose.CALLS, member.name)))
            _ask_to_begin(callers[-1], _shard_of_job(nodes, job, shard), patience)
    except BaseException:
        for caller in callers:
            caller.close()
        raise
    return NodeCalls(callers)


def begin_shard(
    nodes: NodeSession, shard: int, target: Peer, member: ClusterMember, job: JobOnNodes
) -> Caller:
    """Has another node prepare for a shard that will move to it. Only rank 0 calls it.

    Args:
        nodes: Nodes of the job before the move.
        shard: Number of the shard.
        target: The new node.
        member: This process.
        job: The job.

    Returns:
        Connection to the node. The node serves the shard until the connection is closed.

    Raises:
        NameTakenError: Another job uses the node, or the node has this shard already. Not retried.
        StaleEpochError: The node knows another allocation epoch.
        StoreError: The node cannot be reached, or is draining.
    """
    caller = target.caller(Handshake(Purpose.CALLS, member.name))
    try:
        caller.call(JobConnection.begin, _shard_of_job(nodes, job, shard))
    except BaseException:
        caller.close()
        raise
    return caller


def _shard_of_job(nodes: NodeSession, job: JobOnNodes, shard: int) -> ShardOfJob:
    return ShardOfJob(
        job.name,
        job.hosts,
        len(nodes.names),
        shard,
        nodes.session,
        nodes.allocation_epoch,
        job.resumes,
    )


def _ask_to_begin(caller: Caller, shard: ShardOfJob, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            caller.call(JobConnection.begin, shard)
            return
        except NameTakenError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
