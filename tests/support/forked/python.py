"""Python whose scripts start at once: see server.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class ForkedPython:
    """Runs scripts in processes that have imported TensorFlow already.

    Args:
        enter: What goes in front of the command line, to run elsewhere.
    """

    def __init__(self, enter: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*enter, sys.executable, "-m", "tests.support.forked.server"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(
        self,
        argv: Sequence[str],
        stdout: Path,
        stderr: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> int:
        """Starts a script, whose path comes first, and returns the pid.

        Args:
            argv: The command line that follows `python`.
            stdout: What it writes is appended to this file.
            stderr: Likewise, may be the same.
            env: Beside the environment of this process.
            cwd: Where it runs.
        """
        return self._ask(
            argv=[*argv], env={**(env or {})}, cwd=str(cwd), stdout=str(stdout), stderr=str(stderr)
        )

    def wait(self, pid: int) -> int:
        """Returns the exit status of a script, when it has ended."""
        return self._ask(wait=pid)

    def run(self, *argv: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Runs a script to its end."""
        with tempfile.TemporaryDirectory(prefix="tfhybrid-forked-") as folder:
            stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
            status = self.wait(self.start(argv, stdout, stderr, cwd=cwd))
            return subprocess.CompletedProcess(argv, status, stdout.read_text(), stderr.read_text())

    def stop(self) -> None:
        """Ends whatever still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _ask(self, **order: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextlib.contextmanager
def forked_python() -> Iterator[ForkedPython]:
    """Yields one that is stopped when the block ends."""
    python = ForkedPython()
    try:
        yield python
    finally:
        python.stop()
