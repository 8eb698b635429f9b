"""Processes that are stopped, as a debugger or a hung disk stops them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def halt(pid: int) -> None:
    """Stops a process; returns when all its threads stand still, which SIGSTOP alone does not."""
    os.kill(pid, signal.SIGSTOP)
    threads = [*Path(f"/proc/{pid}/task").iterdir()]
    while any("\nState:\tT" not in (thread / "status").read_text() for thread in threads):
        time.sleep(0.001)
