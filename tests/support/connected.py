"""A process that answers calls, at the other end of a connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping

from tfhybrid.errors import StoreError
from tfhybrid.rpc.calls import Caller, answer_calls
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.remote_methods import Called


@contextlib.contextmanager
def connected(calls: Mapping[str, Called], peer: str = "the service") -> Iterator[Caller]:
    """A caller of a thread that answers calls.

    Args:
        calls: Functions that answer, by the name of their call.
        peer: Name of the thread, for errors.
    """
    mine, of_thread = socket.socketpair()

    def answer() -> None:
        with contextlib.suppress(StoreError):
            answer_calls(MessageLink(of_thread, "a test"), calls)
        of_thread.close()

    thread = threading.Thread(target=answer)
    thread.start()
    caller = Caller(mine, peer)
    try:
        yield caller
    finally:
        caller.close()
        thread.join()
