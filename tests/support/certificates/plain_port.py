"""A port on which something listens that does not speak TLS."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def port_without_tls() -> Iterator[tuple[str, int]]:
    """Answers the first connection in plain text; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer() -> None:
            link, _ = plain.accept()
            with link:
                link.recv(100)
                link.sendall(b"220 no TLS spoken here")

        threading.Thread(target=answer, daemon=True).start()
        yield plain.getsockname()[:2]
