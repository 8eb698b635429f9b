"""A listener of a process without descriptors admits clients that have the token."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
from pathlib import Path

from tfhybrid.rpc import listener

DESCRIPTORS, STRANGERS = 50, 100
TOKEN = "a secret of the test"


def serve() -> None:
    """Admits one client, with few descriptors, and writes its handshake."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    link = listener.listen("127.0.0.1")
    sys.stdout.write(f"{link.getsockname()[1]}\n")
    sys.stdout.flush()
    arrivals = listener.Listener(link, TOKEN)
    while True:
        for handshake, *_ in arrivals.arrivals(1.0):
            sys.stdout.write(f"{handshake}\n")
            return


def test_strangers_who_take_all_descriptors_are_closed_for_a_client() -> None:
    command = [sys.executable, Path(__file__)]
    with contextlib.ExitStack() as held:
        process = held.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        held.callback(process.kill)
        address = "127.0.0.1", int(process.stdout.readline())
        for _ in range(STRANGERS):
            held.enter_context(socket.create_connection(address, timeout=30))
        held.enter_context(listener.dial(address, TOKEN, "a client", 30, 60))
        assert process.stdout.readline() == "a client\n"


def test_tokens_of_other_lengths_are_told_apart_and_nothing_behind_them_is_read() -> None:
    with listener.listen("127.0.0.1") as port, contextlib.ExitStack() as held:
        address = port.getsockname()
        arrivals = listener.Listener(port, ["short", "much longer", "other"])
        admitted = {}
        for token in ("much longer", "other", "short", "wrong", "much lonely"):
            link = held.enter_context(listener.dial(address, token, f"with {token}", 30, 60))
            link.sendall(b"more")
        held.callback(arrivals.close)
        while len(admitted) < 3:
            for handshake, link, token in arrivals.arrivals(1.0):
                admitted[token] = handshake
                link.setblocking(True)
                assert link.recv(4, socket.MSG_WAITALL) == b"more"
                link.close()
        assert admitted == {each: f"with {each}" for each in ("short", "much longer", "other")}


if __name__ == "__main__":
    serve()
