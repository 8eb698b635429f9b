"""Ports of this machine for processes that a test starts."""

from __future__ import annotations

import random
import socket
from pathlib import Path


def two_free_ports() -> int:
    """Returns a free port behind which lies another one.

    They lie below those that connections get, so that a process that was killed finds them free.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    dice = random.SystemRandom()
    while True:
        port = dice.randrange(10_000, below - 1)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
