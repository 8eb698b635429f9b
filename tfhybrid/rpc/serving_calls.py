"""Port and main loop of a stream process that serves calls."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from tfhybrid.errors import ConfigError
from tfhybrid.rpc import listener, process_tls
from tfhybrid.rpc.address import parsed_address
from tfhybrid.rpc.calls import answer_calls
from tfhybrid.rpc.handshake import Handshake
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.remote_methods import Called
from tfhybrid.rpc.server import NodeServer


def open_port(address: str) -> socket.socket:
    """Opens the port of a stream process. Callers that connect wait until `serve_calls` runs.

    Open it before anything that a process at the same address uses, such as a queue.

    Args:
        address: Address to listen on, `host:port`.

    Returns:
        The listening socket, which the caller closes.

    Raises:
        ConfigError: The address is not `host:port`, or is not available.
    """
    try:
        return listener.listen(*parsed_address(address))
    except OSError as error:
        raise ConfigError(
            f"The address must be free and of this machine. Does the process run already? "
            f"Received: {address}, {error}"
        ) from error


def serve_calls(
    port: socket.socket,
    tokens: Mapping[str, str],
    calls: Mapping[str, Called],
    rights: Mapping[str, str],
    check: Callable[[], object] = lambda: None,
) -> None:
    """Serves calls until SIGTERM or SIGINT, through TLS if the `TFHYBRID_TLS_` variables are set.

    Sets signal handlers, so only the main thread may call it.

    Args:
        port: Listening socket; closed when the function returns.
        tokens: Right of each token that callers may send, by token.
        calls: Function of each call, by name; see `answer_calls`. Calls run on one thread per
            connection, so the functions must be thread-safe.
        rights: Right that each call needs, by name; see `answer_calls`.
        check: Function that is called several times a second. Its errors propagate, and end the
            service. Default: none.

    Raises:
        ConfigError: Only some of the `TFHYBRID_TLS_` variables are set, or a file of theirs cannot
            be used.
        StoreError: The TLS relay has ended.
        ValueError: This is not the main thread.
    """

    def visit(_: Handshake, link: MessageLink) -> None:
        answer_calls(link, calls, rights)

    server = NodeServer(port, tokens, visit, tls=process_tls.tls_relay(), check=check)
    server.stop_at_signals()
    server.run()
