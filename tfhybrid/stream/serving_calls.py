"""A process of the stream that answers calls until it is told to stop."""

from __future__ import annotations

from collections.abc import Mapping

from tfhybrid.nodes import door
from tfhybrid.nodes.calls import Called, answer_calls
from tfhybrid.nodes.greetings import Greeting
from tfhybrid.nodes.messages import MessageLink
from tfhybrid.nodes.server import NodeServer
from tfhybrid.stream import encryption


def serve_calls(address: str, token: str, calls: Mapping[str, Called]) -> None:
    """Answers calls until SIGTERM or SIGINT comes; through TLS where `encryption.relay` says so.

    Args:
        address: `host:port` to listen at.
        token: That callers must show.
        calls: What they may ask for.

    Raises:
        ConfigError: As of `encryption.relay`.
        StoreError: The TLS relay has ended.
    """
    host, _, port = address.rpartition(":")

    def visit(_: Greeting, link: MessageLink) -> None:
        answer_calls(link, calls)

    listener = door.listen(host.strip("[]"), int(port))
    server = NodeServer(listener, token, visit, tls=encryption.relay())
    server.stop_at_signals()
    server.run()
