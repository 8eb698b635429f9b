"""Main loop of a stream process that serves calls."""

from __future__ import annotations

from collections.abc import Mapping

from tfhybrid.rpc import listener, process_tls
from tfhybrid.rpc.address import parsed_address
from tfhybrid.rpc.calls import answer_calls
from tfhybrid.rpc.handshake import Handshake
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.remote_methods import Called
from tfhybrid.rpc.server import NodeServer


def serve_calls(address: str, token: str, calls: Mapping[str, Called]) -> None:
    """Serves calls until SIGTERM or SIGINT, through TLS if the `TFHYBRID_TLS_` variables are set.

    Sets signal handlers, so only the main thread may call it.

    Args:
        address: Address to listen on, `host:port`.
        token: Token that callers must send.
        calls: Function of each call, by name; see `answer_calls`. Calls run on one thread per
            connection, so the functions must be thread-safe.

    Raises:
        ConfigError: The address is not `host:port`, only some of the `TFHYBRID_TLS_` variables are
            set, or a file of theirs cannot be used.
        OSError: The address is not available.
        StoreError: The TLS relay has ended.
        ValueError, OverflowError: The address has no valid port, or this is not the main thread.
    """

    def visit(_: Handshake, link: MessageLink) -> None:
        answer_calls(link, calls)

    listener_socket = listener.listen(*parsed_address(address))
    server = NodeServer(listener_socket, token, visit, tls=process_tls.tls_relay())
    server.stop_at_signals()
    server.run()
