"""How the ranks of a job join embedding nodes that are up.

Rank 0 asks the metadata node who owns the slots, and has each of them work for the job.
Every rank then connects to read rows, leaders for updates too, and rank 0 once more, to hear what
nodes have staged. Nodes connect to nobody.
"""

from __future__ import annotations

import dataclasses
import secrets
import socket
import threading
import time
from collections.abc import Sequence

from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose
from tfhybrid.errors import NameTakenError, StaleEpochError, StoreError
from tfhybrid.nodes import door
from tfhybrid.nodes.calls import Caller
from tfhybrid.nodes.embedding import ACCEPTED
from tfhybrid.nodes.greetings import Greeting, Link
from tfhybrid.nodes.membership import View
from tfhybrid.nodes.node_calls import NodeCalls
from tfhybrid.nodes.registration import look_up
from tfhybrid.nodes.tls import Tls, dialled

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
    """

    session: str
    names: tuple[str, ...]
    addresses: tuple[tuple[str, int], ...]
    epoch: int


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
    return Joined(secrets.token_hex(8), view.owners, addresses, view.epoch)


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
            link = _dial(node, address, token, greeting, silence, tls)
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
    caller = Caller(_dial(node, address, token, Greeting(Link.CALLS, name), silence, tls), node)
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


class NodeLinks:
    """The connections of one rank to the embedding nodes, for rows and updates.

    Args:
        engine: Of this rank.
        nodes: Of the job.
        token: Of the cluster.
        name: What this rank calls itself.
        silence: Seconds after which a silent node counts as gone.
        leads: Whether this rank leads its host.
        tls: What encrypts the connections; `None` for none.
    """

    def __init__(
        self,
        engine: Engine,
        nodes: Joined,
        token: str,
        name: str,
        silence: float,
        *,
        leads: bool,
        tls: Tls | None = None,
    ) -> None:
        self._engine = engine
        self._nodes = nodes
        self._token = token
        self._name = name
        self._silence = silence
        self._leads = leads
        self._tls = tls
        self._lock = threading.Lock()
        self._connected = False

    def connect(self) -> None:
        """Connects this rank to all nodes, when first called.

        Raises:
            StoreError: One cannot be reached, or refuses this rank.
        """
        with self._lock:
            if self._connected:
                return
            for share in range(len(self._nodes.names)):
                self._connect(share)
            self._connected = True

    @property
    def nodes(self) -> Joined:
        """The nodes to which it connects."""
        return self._nodes

    def follow(self, nodes: Joined) -> None:
        """Connects this rank to the new nodes of shares that have moved; between two steps.

        Args:
            nodes: Of the job, as they are now.

        Raises:
            StoreError: One cannot be reached, or refuses this rank.
        """
        with self._lock:
            before, self._nodes = self._nodes, nodes
            for share, place in enumerate(zip(nodes.names, nodes.addresses, strict=True)):
                if self._connected and place != (before.names[share], before.addresses[share]):
                    self._connect(share)

    def stop(self) -> None:
        """Connects no more; what is connected ends with the engine."""
        if self._tls is not None:
            self._tls.close()

    def abandon(self) -> None:
        """Leaves the connections to the parent, in a forked child: nodes notice when it dies."""
        if self._tls is not None:
            self._tls.abandon()

    def _connect(self, share: int) -> None:
        host, node = max(self._engine.hosts) + 1 + share, self._nodes.names[share]
        self._engine.connect_owner(host, LinkPurpose.READS, self._dialled(share, Link.READS), node)
        if not self._leads:
            return
        if self._engine.host == 0:  # before updates: then the node can answer the first
            link = self._dialled(share, Link.STAGED)
            self._engine.serve_owner(host, LinkPurpose.UPDATES, link, node)
        link = self._dialled(share, Link.UPDATES)
        self._engine.connect_owner(host, LinkPurpose.UPDATES, link, node)

    def _dialled(self, share: int, to: Link) -> socket.socket:
        node, address = self._nodes.names[share], self._nodes.addresses[share]
        greeting = Greeting(to, self._name, self._nodes.session, self._engine.host, share)
        link = _dial(node, address, self._token, greeting, self._silence, self._tls)
        try:
            accepted = link.recv(1)
        except OSError as error:
            link.close()
            raise StoreError(f"{node} does not answer: {error}") from error
        if accepted != ACCEPTED:
            link.close()
            raise StoreError(f"{node} refuses {self._name}; its log says why")
        return link


def _dial(
    node: str,
    address: tuple[str, int],
    token: str,
    greeting: Greeting,
    silence: float,
    tls: Tls | None,
) -> socket.socket:
    wrap = dialled(tls, node)
    try:
        return door.dial(address, token, greeting.text(), _CONNECT_SECONDS, silence, wrap)
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
