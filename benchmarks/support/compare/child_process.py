"""A child process that does not outlive the block in which it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

SECONDS_TO_END = 30


@contextlib.contextmanager
def child(
    command: list[str],
    folder: Path,
    output: int | IO[str] = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Runs a command, and ends it and its children if the block is left before it has ended.

    They are interrupted as by Ctrl-C, and killed after 30 s.

    Args:
        command: The command.
        folder: Its working directory.
        output: Where it writes what it prints. Default: a pipe.
        environment: Its environment. Default: that of this process.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=SECONDS_TO_END)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
