"""Bytes that this host's connections have received, by the host that sent them."""

from __future__ import annotations

import collections
import re
import subprocess

_RECEIVED = re.compile(r"bytes_received:(\d+)")


def received_by_host() -> dict[str, int]:
    """Returns the bytes of all open connections of this host, by the other end's address.

    Bytes without headers, as the kernel counts them for each connection.
    """
    told = subprocess.run(
        ["ss", "--tcp", "--info", "--numeric", "--no-header", "--oneline"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    counts: dict[str, int] = collections.Counter()
    for line in told.splitlines():
        peer = line.split()[4].rpartition(":")[0].strip("[]").removeprefix("::ffff:")
        if found := _RECEIVED.search(line):
            counts[peer] += int(found[1])
    return dict(counts)
