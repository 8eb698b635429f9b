"""How the ranks of a job join embedding nodes that are up.

Rank 0 asks the metadata node who owns the slots, and has each of them work for the job. Then every
rank connects to them (`node_links`).
"""

from __future__ import annotations

import dataclasses
import secrets
import socket
import time
from collections.abc import Sequence

from tfhybrid.cluster.membership import View
from tfhybrid.cluster.registration import look_up
from tfhybrid.embedding_nodes.node_calls import NodeCalls
from tfhybrid.errors import NameTakenError, StaleEpochError, StoreError
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.handshake import Greeting, Link
from tfhybrid.rpc.tls import Tls, dialled

_CONNECT_SECONDS = 30.0
_READY_SECONDS = 60.0
_TRIES = 5


@dataclasses.dataclass(frozen=True)
class Joined:
    """The embedding nodes of a job, as all its ranks know them.

    Args:
        session: Of the job.
        names: Of the node of each share of the slots.
        addresses: Of those nodes.
        epoch: Of the allocation.
        data: Names of the data nodes.
    """

    session: str
    names: tuple[str, ...]
    addresses: tuple[tuple[str, int], ...]
    epoch: int
    data: tuple[str, ...] = ()


def find_nodes(metadata: tuple[str, int], token: str, name: str, tls: Tls | None = None) -> Joined:
    """Asks the metadata node for embedding nodes; on rank 0.

    Args:
        metadata: Its address.
        token: Of the cluster.
        name: What this process calls itself.
        tls: What encrypts the connection; `None` for none.

    Raises:
        StoreError: It cannot be reached, or a node is not ready.
    """
    view: View = look_up(metadata, token, name, _READY_SECONDS, tls)
    addresses = tuple(view.nodes[owner].address for owner in view.owners)
    return Joined(secrets.token_hex(8), view.owners, addresses, view.epoch, view.living("data"))


def find_and_begin(
    metadata: tuple[str, int],
    token: str,
    name: str,
    silence: float,
    job: str,
    hosts: Sequence[int],
    *,
    resumes: bool,
    tls: Tls | None = None,
) -> tuple[Joined, NodeCalls]:
    """Finds the nodes and has them work for the job; once more where slots moved between.

    Args:
        metadata: Address of the metadata node.
        token: As of `begin`, and so are the rest.
        name: What this process calls itself.
        silence: Seconds after which a silent node counts as gone.
        job: Its name.
        hosts: The host of each rank.
        resumes: Whether the nodes leave their stores to the job's next run, if this one dies.
        tls: What encrypts the connections; `None` for none.

    Raises:
        StoreError: As of `find_nodes` and `begin`.
    """
    tries = 0
    while True:
        nodes = find_nodes(metadata, token, name, tls)
        try:
            return nodes, begin(nodes, token, name, silence, job, hosts, resumes=resumes, tls=tls)
        except StaleEpochError:
            tries += 1
            if tries == _TRIES:
                raise


def begin(
    nodes: Joined,
    token: str,
    name: str,
    silence: float,
    job: str,
    hosts: Sequence[int],
    *,
    resumes: bool = False,
    patience: float = 10.0,
    tls: Tls | None = None,
) -> NodeCalls:
    """Has all nodes work for the job; on rank 0.

    Args:
        nodes: Of the job.
        token: Of the cluster.
        name: What this process calls itself.
        silence: Seconds after which a silent node counts as gone.
        job: Its name.
        hosts: The host of each rank.
        resumes: Whether the nodes leave their stores to the job's next run, if this one dies.
        patience: Seconds that the job before may take to be gone.
        tls: What encrypts the connections; `None` for none.

    Raises:
        NameTakenError: Another job uses a node.
        StoreError: A node cannot be reached, or knows another epoch.
    """
    callers: list[Caller] = []
    try:
        for share, (node, address) in enumerate(zip(nodes.names, nodes.addresses, strict=True)):
            greeting = Greeting(Link.CALLS, name)
            link = dial_node(node, address, token, greeting, silence, tls)
            callers.append(Caller(link, node))
            _ask_to_begin(callers[-1], _beginning(nodes, job, hosts, share, resumes), patience)
    except BaseException:
        for caller in callers:
            caller.close()
        raise
    return NodeCalls(callers)


def begin_share(
    nodes: Joined,
    share: int,
    node: str,
    address: tuple[str, int],
    token: str,
    name: str,
    silence: float,
    job: str,
    hosts: Sequence[int],
    *,
    resumes: bool,
    tls: Tls | None = None,
) -> Caller:
    """Has another node get ready for a share that it is to take over; on rank 0.

    Args:
        nodes: Of the job, as they are.
        share: What moves.
        node: The name of the new node.
        address: Of it.
        token: As of `begin`, and so are the rest.
        name: What this process calls itself.
        silence: Seconds after which a silent node counts as gone.
        job: Its name.
        hosts: The host of each rank.
        resumes: Whether the next run of the job shall find its tables.
        tls: What encrypts the connection; `None` for none.

    Raises:
        NameTakenError: Another job uses the node.
        StoreError: It cannot be reached, or knows another epoch.
    """
    caller = Caller(dial_node(node, address, token, Greeting(Link.CALLS, name), silence, tls), node)
    try:
        caller.ask("begin", _beginning(nodes, job, hosts, share, resumes))
    except BaseException:
        caller.close()
        raise
    return caller


def _beginning(
    nodes: Joined, job: str, hosts: Sequence[int], share: int, resumes: bool
) -> dict[str, object]:
    return {
        "job": job,
        "hosts": list(hosts),
        "nodes": len(nodes.names),
        "number": share,
        "session": nodes.session,
        "epoch": nodes.epoch,
        "resumes": resumes,
    }


def dial_node(
    node: str,
    address: tuple[str, int],
    token: str,
    greeting: Greeting,
    silence: float,
    tls: Tls | None,
) -> socket.socket:
    """Connects a rank to a node of the job.

    Args:
        node: Its name.
        address: Of it.
        token: Of the cluster.
        greeting: What the rank says of itself.
        silence: Seconds after which a silent node counts as gone.
        tls: What encrypts the connection; `None` for none.

    Raises:
        StoreError: It cannot be reached.
    """
    wrap = dialled(tls, node)
    try:
        return listener.dial(address, token, greeting.text(), _CONNECT_SECONDS, silence, wrap)
    except OSError as error:
        raise StoreError(
            f"Cannot connect to {node} at {address[0]} port {address[1]} ({error}). "
            "Does a firewall close the ports between the hosts?"
        ) from error


def _ask_to_begin(caller: Caller, asked: dict[str, object], patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            caller.ask("begin", asked)
            return
        except NameTakenError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
