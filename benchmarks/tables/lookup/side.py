"""The driver's end of a side: the process that holds one table and works when it is told to."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.support import launch

BUILD = launch.ROOT / "build" / "benchmarks"
# One rank has nothing to say to others, but Horovod's thread would wake every millisecond and take
# time from the side whose turn it is.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "HOROVOD_CYCLE_TIME": "100"}
GATHER = launch.ROOT / "benchmarks" / "tables" / "lookup" / "gather.cc"


def commands(rows: int, threads: int) -> dict[str, list[str] | None]:
    """Returns the command line of every side by name; None where its environment is missing."""
    options = ["--rows", str(rows), "--threads", str(threads)]
    gather = [str(BUILD / "gather"), str(rows), str(threads)]
    try:
        tfra = [str(launch.peer_python("tfra")), "-m", "benchmarks.tables.lookup.tfra", *options]
    except launch.SideFailedError:
        tfra = None
    return {
        "gather": [*gather, "small"],
        "gather-huge": [*gather, "huge"],
        "dense": [sys.executable, "-m", "benchmarks.tables.lookup.dense", *options],
        "tfra": tfra,
        "tfhybrid": [sys.executable, "-m", "benchmarks.tables.lookup.tfhybrid_lookup", *options],
    }


def compile_gather() -> None:
    """Compiles the native bound, for any x86-64 as the ops are."""
    BUILD.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CXX", "g++")
    flags = ["-O3", "-std=c++17", "-pthread"]
    subprocess.run([compiler, *flags, str(GATHER), "-o", str(BUILD / "gather")], check=True)


@dataclasses.dataclass(frozen=True)
class Turn:
    """Milliseconds of each call of a turn, by the clock and of all processors."""

    milliseconds: list[float]
    processor_milliseconds: list[float]


class Side:
    """A running side; between two calls of `take_turn` it is blocked.

    Its standard error goes to `build/benchmarks/lookup-NAME.log`.

    Args:
        name: the side's name.
        command: its command line.

    Raises:
        launch.SideFailedError: it ended, or could not build its table.
    """

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._log = BUILD / f"lookup-{name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=launch.ROOT,
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.facts = self._answer()["ready"]

    def take_turn(self, operation: str, calls: int) -> Turn:
        """Returns the times of `calls` calls, after one that does not count."""
        self._process.stdin.write(f"{operation} {calls}\n")
        self._process.stdin.flush()
        answer = self._answer()
        return Turn(answer["milliseconds"], answer["processor_milliseconds"])

    def close(self) -> None:
        """Lets the process end."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=60)

    def _answer(self) -> dict[str, object]:
        """Reads up to the next answer; what libraries print is skipped."""
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        status = self._process.wait()
        tail = "\n".join(Path(self._log).read_text().splitlines()[-30:])
        raise launch.SideFailedError(f"side {self.name} ended with status {status}:\n{tail}")
