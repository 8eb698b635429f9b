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

from tfhybrid.core import batches
from tfhybrid.core.native import LinkPurpose
from tfhybrid.errors import NameTakenError, StoreError
from tfhybrid.nodes import door
from tfhybrid.nodes.calls import Caller
from tfhybrid.nodes.embedding import ACCEPTED
from tfhybrid.nodes.engine import NodesEngine
from tfhybrid.nodes.feed import Feed, Trainer, Wanted
from tfhybrid.nodes.greetings import Greeting, Link
from tfhybrid.nodes.key_links import REQUEST
from tfhybrid.nodes.membership import View
from tfhybrid.nodes.messages import MessageLink
from tfhybrid.nodes.node_calls import NodeCalls
from tfhybrid.nodes.registration import address_of, look_up
from tfhybrid.nodes.sent_rows import EngineRows
from tfhybrid.nodes.tickets import TicketBook

_CONNECT_SECONDS = 30.0
_READY_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Joined:
    """The embedding nodes of a job, as all its ranks know them.

    Args:
        session: Of the job.
        names: Of the nodes, in the order of the allocation.
        addresses: Of the nodes.
        epoch: Of the allocation.
        data: Names of the data nodes.
    """

    session: str
    names: tuple[str, ...]
    addresses: tuple[tuple[str, int], ...]
    epoch: int
    data: tuple[str, ...] = ()


def find_nodes(metadata: tuple[str, int], token: str, name: str) -> Joined:
    """Asks the metadata node for embedding nodes; on rank 0.

    Args:
        metadata: Its address.
        token: Of the cluster.
        name: What this process calls itself.

    Raises:
        StoreError: It cannot be reached, or a node is not ready.
    """
    view: View = look_up(metadata, token, name, _READY_SECONDS)
    addresses = tuple(view.nodes[owner].address for owner in view.owners)
    return Joined(secrets.token_hex(8), view.owners, addresses, view.epoch, view.living("data"))


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

    Raises:
        NameTakenError: Another job uses a node.
        StoreError: A node cannot be reached, or knows another epoch.
    """
    callers: list[Caller] = []
    try:
        for number, (node, address) in enumerate(zip(nodes.names, nodes.addresses, strict=True)):
            greeting = Greeting(Link.CALLS, name)
            link = _dial(node, address, token, greeting, silence)
            callers.append(Caller(link, node))
            asked = {
                "job": job,
                "hosts": list(hosts),
                "nodes": len(nodes.names),
                "number": number,
                "session": nodes.session,
                "epoch": nodes.epoch,
                "resumes": resumes,
            }
            _ask_to_begin(callers[-1], asked, patience)
    except BaseException:
        for caller in callers:
            caller.close()
        raise
    return NodeCalls(callers)


class NodeLinks:
    """The connections of one rank to the embedding nodes, for rows and updates.

    Args:
        engine: Of this rank.
        nodes: Of the job.
        token: Of the cluster.
        name: What this rank calls itself.
        silence: Seconds after which a silent node counts as gone.
        leads: Whether this rank leads its host.
        metadata: Address of the metadata node, where data nodes are looked up.
    """

    def __init__(
        self,
        engine: NodesEngine,
        nodes: Joined,
        token: str,
        name: str,
        silence: float,
        *,
        leads: bool,
        metadata: tuple[str, int] = ("", 0),
    ) -> None:
        self._metadata = metadata
        self._engine = engine
        self._nodes = nodes
        self._token = token
        self._name = name
        self._silence = silence
        self._leads = leads
        self._lock = threading.Lock()
        self._connected = False
        self._book: TicketBook | None = None
        self._feeds = 0
        self._takes_rows = False

    def connect(self) -> None:
        """Connects this rank to all nodes, when first called.

        Raises:
            StoreError: One cannot be reached, or refuses this rank.
        """
        with self._lock:
            if self._connected:
                return
            first = max(self._engine.hosts) + 1
            for number, node in enumerate(self._nodes.names):
                self._connect(first + number, node, self._nodes.addresses[number])
            self._connected = True

    @property
    def data(self) -> tuple[str, ...]:
        """Names of the data nodes."""
        return self._nodes.data

    def feed(self, wanted: Wanted, rank: int, size: int) -> Feed:
        """Returns a data set that data nodes read for this rank.

        Args:
            wanted: Which.
            rank: This one.
            size: Number of ranks.
        """
        if self._book is None:
            self._book = TicketBook(lambda: batches.looked_up(self._engine), rank, size)
        owners = list(zip(self._nodes.names, self._nodes.addresses, strict=True))
        trainer = Trainer(self._nodes.session, rank, size, owners, self.data)
        if wanted.join != REQUEST:
            self._take_rows(rank)
        self._feeds += 1
        rows = EngineRows(self._engine, self._engine.dims)
        return Feed(trainer, wanted, self._feeds, self._dial_data, self._book, rows)

    def _take_rows(self, rank: int) -> None:
        """Connects to all embedding nodes for rows that they send unasked, when first called."""
        if self._takes_rows:
            return
        for number, node in enumerate(self._nodes.names):
            link = self._dialled(node, self._nodes.addresses[number], Link.ROWS, rank)
            batches.receive_rows(self._engine, self._engine.first_node + number, link, node)
        self._takes_rows = True

    def _dial_data(self, node: str) -> MessageLink:
        address = address_of(self._metadata, self._token, self._name, node)
        greeting = Greeting(Link.CALLS, self._name, self._nodes.session)
        return MessageLink(_dial(node, address, self._token, greeting, self._silence), node)

    def _connect(self, host: int, node: str, address: tuple[str, int]) -> None:
        self._engine.connect_owner(
            host, LinkPurpose.READS, self._dialled(node, address, Link.READS), node
        )
        if not self._leads:
            return
        if self._engine.host == 0:  # before updates: then the node can answer the first
            link = self._dialled(node, address, Link.STAGED)
            self._engine.serve_owner(host, LinkPurpose.UPDATES, link, node)
        link = self._dialled(node, address, Link.UPDATES)
        self._engine.connect_owner(host, LinkPurpose.UPDATES, link, node)

    def _dialled(
        self, node: str, address: tuple[str, int], to: Link, rank: int = 0
    ) -> socket.socket:
        greeting = Greeting(to, self._name, self._nodes.session, self._engine.host, rank)
        link = _dial(node, address, self._token, greeting, self._silence)
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
    node: str, address: tuple[str, int], token: str, greeting: Greeting, silence: float
) -> socket.socket:
    try:
        return door.dial(address, token, greeting.text(), _CONNECT_SECONDS, silence)
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
