"""The metadata node: states of nodes and the allocation, for all who ask.

    python -m tfhybrid.nodes.metadata --state FILE --token-file FILE --owners NAME,NAME ...

A node stays connected: when its connection ends, it is lost. If this process dies, jobs go on; no
node can join until it is back. It takes its state from the file then.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfhybrid.errors import StoreError
from tfhybrid.nodes import door
from tfhybrid.nodes.balance import Move, moves
from tfhybrid.nodes.calls import Answer, answer_calls
from tfhybrid.nodes.greetings import Greeting
from tfhybrid.nodes.membership import OWNING_ROLE, Membership, NodeState
from tfhybrid.nodes.messages import MessageLink
from tfhybrid.nodes.node_options import read_token, set_up_logging
from tfhybrid.nodes.owned_store import Arguments, Found
from tfhybrid.nodes.rates import Rates
from tfhybrid.nodes.server import NodeServer
from tfhybrid.nodes.status import StatusServer, status_of
from tfhybrid.nodes.tls import Tls
from tfhybrid.settings import tls_files

_log = logging.getLogger("tfhybrid.nodes")


class MetadataNode:
    """Answers nodes and trainers.

    Args:
        membership: Its state.
        server_address: Where it listens.
        token: Of the cluster.
        tls: What encrypts its connections; `None` for none.
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
        listener = door.listen(*server_address)
        self.address = listener.getsockname()[:2]
        self.server = NodeServer(listener, token, self._visit, tls=tls)

    def status(self) -> dict[str, object]:
        """Returns all that is known, as JSON has it."""
        with self._lock:
            return status_of(self._membership, dict(self._numbers))

    def _balance(self) -> list[list[object]]:
        """Moves shares while no job has rows in them; else returns what the job is to move.

        A node that has told nothing since this process began may have a job.
        """
        planned = moves(self._membership.view)
        if self._may_have_job():
            return _as_json(planned)
        for each in planned:
            epoch = self._membership.view.epoch
            self._membership.move(each.share, each.origin, each.to, epoch)
        return []

    def _may_have_job(self) -> bool:
        nodes = self._membership.view.nodes.values()
        living = [
            node.name for node in nodes if node.role == OWNING_ROLE and node.state != NodeState.LOST
        ]
        with self._lock:
            return any(self._numbers.get(name, {}).get("jobs", 1.0) > 0 for name in living)

    def _visit(self, greeting: Greeting, link: MessageLink) -> None:
        joined: dict[str, str] = {}
        rates = Rates()

        def told() -> dict[str, object]:
            now = self._membership.view
            return {"epoch": now.epoch, "draining": now.nodes[joined["name"]].draining}

        def join(its: Arguments, _: Found) -> Answer:
            host, port = its["address"]
            epoch = self._membership.join(
                str(its["name"]),
                str(its["role"]),
                (str(host), int(port)),
                str(its["incarnation"]),
            )
            joined.update(name=str(its["name"]), incarnation=str(its["incarnation"]))
            _log.info("%s has joined, epoch %d", its["name"], epoch)
            return told(), {}

        def beat(its: Arguments, _: Found) -> Answer:
            if not joined:
                raise StoreError("A node joins first")
            numbers = {str(name): float(number) for name, number in its["numbers"].items()}
            with self._lock:
                self._numbers[joined["name"]] = numbers | rates.of(numbers)
            self._membership.heard_of(joined["name"], joined["incarnation"])
            return told(), {}

        def drain(its: Arguments, _: Found) -> Answer:
            self._membership.drain(str(its["name"]))
            return None, {}

        def move(its: Arguments, _: Found) -> Answer:
            share, epoch = int(its["share"]), int(its["epoch"])
            return self._membership.move(share, str(its["origin"]), str(its["to"]), epoch), {}

        def plan(_: Arguments, __: Found) -> Answer:
            return _as_json(moves(self._membership.view)), {}

        def balance(_: Arguments, __: Found) -> Answer:
            return self._balance(), {}

        def view(_: Arguments, __: Found) -> Answer:
            return self._membership.view.as_json(), {}

        def status(_: Arguments, __: Found) -> Answer:
            return self.status(), {}

        try:
            answer_calls(
                link,
                {
                    "join": join,
                    "beat": beat,
                    "drain": drain,
                    "move": move,
                    "plan": plan,
                    "balance": balance,
                    "view": view,
                    "status": status,
                },
            )
        finally:
            if joined:
                _log.warning("%s is lost", joined["name"])
                self._membership.set_state(joined["name"], joined["incarnation"], NodeState.LOST)


def _as_json(planned: Sequence[Move]) -> list[list[object]]:
    return [list(dataclasses.astuple(each)) for each in planned]


def main() -> None:
    """Runs the metadata node until SIGTERM."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state", required=True, type=Path)
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument(
        "--owners",
        required=True,
        help="of each share of the slots, the embedding node that owns it at first",
    )
    parser.add_argument("--listen", default="127.0.0.1", metavar="ADDRESS")
    parser.add_argument("--port", default=0, type=int)
    parser.add_argument("--status-port", default=0, type=int)
    told = parser.parse_args()
    set_up_logging()
    token = read_token(told.token_file)
    membership = Membership(told.state, told.owners.split(","))
    node = MetadataNode(membership, (told.listen, told.port), token, Tls.from_environment())
    node.server.stop_at_signals()
    page = StatusServer((told.listen, told.status_port), token, node.status, tls_files())
    _log.info("Listens on %s port %d; status on port %d", *node.address, page.port)
    with contextlib.closing(page):
        node.server.run()


if __name__ == "__main__":
    main()
