"""A job under horovodrun, whose ranks tests kill."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path


class RunningJob:
    """A job under horovodrun whose ranks have all said that they run."""

    def __init__(self, ranks: int, shm_directory: Path, script: Path, *arguments: str) -> None:
        command = [str(Path(sys.executable).with_name("horovodrun")), "--gloo", "-np", str(ranks)]
        self.output = ""
        self._process = subprocess.Popen(
            [*command, sys.executable, str(script), *arguments],
            env={**os.environ, "TFHYBRID_SHM_DIR": str(shm_directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.pids: dict[int, int] = {}
        for line in self._process.stdout:
            self.output += line
            if found := re.search(r"running rank=(\d+) pid=(\d+)", line):
                self.pids[int(found[1])] = int(found[2])
                if len(self.pids) == ranks:
                    return
        raise AssertionError(f"the job ended before all ranks ran:\n{self.output}")

    def kill(self, rank: int) -> None:
        """kill -9."""
        os.kill(self.pids[rank], signal.SIGKILL)

    def interrupt(self) -> None:
        """Ctrl-C at horovodrun."""
        self._process.send_signal(signal.SIGINT)

    def wait(self, seconds: float) -> int:
        """Returns the exit status of horovodrun; fails the test if it runs on."""
        self.output += self._process.communicate(timeout=seconds)[0]
        return self._process.returncode

    def stop(self) -> None:
        """Ends whatever still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
