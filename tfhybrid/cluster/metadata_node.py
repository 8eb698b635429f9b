"""Metadata node: serves the states of nodes and the allocation of slots.

    python -m tfhybrid.cluster.metadata_node --state FILE --token-file FILE --owners NAME,NAME ...

A registered node keeps its connection open; when the connection ends, the node is lost. If this
process dies, running jobs are not affected, but no node can register until it is back. A restarted
process loads its state from the file.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfhybrid.cluster.balance import Move, moves
from tfhybrid.cluster.membership import OWNING_ROLE, Membership, NodeState
from tfhybrid.cluster.node_options import read_token, set_up_logging
from tfhybrid.cluster.rates import Rates
from tfhybrid.cluster.status import StatusServer, status_of
from tfhybrid.errors import StoreError
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import Answer, Arguments, Called, ReceivedArrays, answer_calls
from tfhybrid.rpc.handshake import Handshake
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.server import NodeServer
from tfhybrid.rpc.tls import Tls
from tfhybrid.settings import tls_files

_log = logging.getLogger("tfhybrid.cluster")


class MetadataNode:
    """Server of the metadata node, which knows the nodes of a cluster and the owner of each shard.

    The caller runs `server`, which also closes the listener.

    Args:
        membership: Nodes and owners of shards, kept in a file.
        server_address: Host and port to listen on; port 0 means a free one.
        token: Secret that connections must send.
        tls: TLS relay of this process. Default: `None`, connections are not encrypted.

    Attributes:
        address: Host and port of the listener.
        server: Server that accepts and answers connections.

    Raises:
        OSError: The address is not available.
    """

    def __init__(
        self,
        membership: Membership,
        server_address: tuple[str, int],
        token: str,
        tls: Tls | None = None,
    ) -> None:
        self._membership = membership
        self._numbers: dict[str, Mapping[str, float]] = {}
        self._lock = threading.Lock()
        listener_socket = listener.listen(*server_address)
        self.address = listener_socket.getsockname()[:2]
        self.server = NodeServer(listener_socket, token, self._visit, tls=tls)

    def status(self) -> dict[str, object]:
        """Returns the status of the cluster as a JSON-serializable object. Thread-safe.

        Returns:
            `epoch`, the allocation epoch; `nodes`, with state, address and numbers of each;
            `allocation`, the node of each shard; `missing`, the names of the owners that are not
            ready.
        """
        with self._lock:
            return status_of(self._membership, dict(self._numbers))

    def _balance(self) -> list[list[object]]:
        """Moves shards if no job has rows in them; returns the moves left to the running job.

        A node that has sent no heartbeat since this process started may have a job.
        """
        planned = moves(self._membership.view)
        if self._may_have_job():
            return _as_json(planned)
        for each in planned:
            epoch = self._membership.view.epoch
            self._membership.move(each.shard, each.origin, each.to, epoch)
        return []

    def _may_have_job(self) -> bool:
        nodes = self._membership.view.nodes.values()
        living = [
            node.name for node in nodes if node.role == OWNING_ROLE and node.state != NodeState.LOST
        ]
        with self._lock:
            return any(self._numbers.get(name, {}).get("jobs", 1.0) > 0 for name in living)

    def _calls(self) -> dict[str, Called]:
        """Returns the calls that need no registration, by name."""
        return {
            "drain": self._drain,
            "move": self._move,
            "plan": lambda _, __: (_as_json(moves(self._membership.view)), {}),
            "balance": lambda _, __: (self._balance(), {}),
            "view": lambda _, __: (self._membership.view.as_json(), {}),
            "status": lambda _, __: (self.status(), {}),
        }

    def _drain(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._membership.drain(str(arguments["name"]))
        return None, {}

    def _move(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        shard, epoch = int(arguments["share"]), int(arguments["epoch"])
        origin, to = str(arguments["origin"]), str(arguments["to"])
        return self._membership.move(shard, origin, to, epoch), {}

    def _visit(self, handshake: Handshake, link: MessageLink) -> None:
        node: dict[str, str] = {}  # name and incarnation, once it has registered
        rates = Rates()

        def response() -> dict[str, object]:
            now = self._membership.view
            return {"epoch": now.epoch, "draining": now.nodes[node["name"]].draining}

        def register(arguments: Arguments, _: ReceivedArrays) -> Answer:
            host, port = arguments["address"]
            epoch = self._membership.register(
                str(arguments["name"]),
                str(arguments["role"]),
                (str(host), int(port)),
                str(arguments["incarnation"]),
            )
            node.update(name=str(arguments["name"]), incarnation=str(arguments["incarnation"]))
            _log.info("%s has registered, allocation epoch %d", node["name"], epoch)
            return response(), {}

        def beat(arguments: Arguments, _: ReceivedArrays) -> Answer:
            if not node:
                raise StoreError("A node must register before it sends heartbeats")
            numbers = {str(name): float(number) for name, number in arguments["numbers"].items()}
            with self._lock:
                self._numbers[node["name"]] = numbers | rates.of(numbers)
            self._membership.heard_of(node["name"], node["incarnation"])
            return response(), {}

        try:
            answer_calls(link, self._calls() | {"join": register, "beat": beat})
        finally:
            if node:
                _log.warning("%s is lost: its connection has ended", node["name"])
                self._membership.set_state(node["name"], node["incarnation"], NodeState.LOST)


def _as_json(planned: Sequence[Move]) -> list[list[object]]:
    return [list(dataclasses.astuple(each)) for each in planned]


def main() -> None:
    """Runs the metadata node until SIGTERM, with the options of the command line.

    Prints the usage and exits if the options cannot be parsed.

    Raises:
        ConfigError: The token or the TLS files cannot be used.
        StoreError: The state file is damaged, or belongs to a cluster with another number of
            shards.
        OSError: An address is not available, or the state file cannot be written.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state", required=True, type=Path)
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument(
        "--owners",
        required=True,
        help="name of the first owner of each shard of the slots, separated by commas",
    )
    parser.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS")
    parser.add_argument("--port", default=0, type=int)
    parser.add_argument("--status-port", default=0, type=int)
    arguments = parser.parse_args()
    set_up_logging()
    token = read_token(arguments.token_file)
    membership = Membership(arguments.state, arguments.owners.split(","))
    address = arguments.listen, arguments.port
    node = MetadataNode(membership, address, token, Tls.from_environment())
    node.server.stop_at_signals()
    status_address = arguments.listen, arguments.status_port
    page = StatusServer(status_address, token, node.status, tls_files())
    _log.info("Listening on %s port %d; status page on port %d", *node.address, page.port)
    with contextlib.closing(page):
        node.server.run()


if __name__ == "__main__":
    main()
