"""The engine `local`: processes of this machine, started, watched and started again.

    python -m tfhybrid.nodes.local_engine DIRECTORY

A supervisor holds a lock on `DIRECTORY/lock` as long as it lives. Its processes die with it: the
kernel sees to that. `DIRECTORY/processes.json` says what runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import StoreError
from tfhybrid.nodes import placed_processes
from tfhybrid.nodes.cluster_file import Cluster
from tfhybrid.nodes.node_options import set_up_logging
from tfhybrid.nodes.placed_processes import PlacedProcess, processes_of
from tfhybrid.nodes.processors import processors_of
from tfhybrid.nodes.watched_process import WatchedProcess

_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0


class Supervisor:
    """Keeps processes running until it is stopped, or all that may end are done.

    Args:
        directory: Of logs and `processes.json`.
        processes: What to run.
        tell: Called with what `processes.json` says, when that has changed.
    """

    def __init__(
        self,
        directory: Path,
        processes: Sequence[PlacedProcess],
        tell: Callable[[dict[str, Any]], object] = lambda _: None,
    ) -> None:
        self._told_to = tell
        self._directory = directory
        self._file = directory / "processes.json"
        self._watched: list[WatchedProcess] = []
        self._add(processes)
        self._stopping = False
        self._adding = False

    def stop(self, *_: object) -> None:
        """Makes `run` end; may be a handler of signals."""
        self._stopping = True

    def add(self, *_: object) -> None:
        """Makes `run` start what `plan.json` has and it does not; may be a handler of signals."""
        self._adding = True

    def run(self) -> None:
        """Runs them until `stop`, or all that may end are done, and ends them."""
        while not self._stopping and not self._done():
            if self._adding:
                self._adding = False
                self._add(placed_processes.read(self._directory / "plan.json"))
            changes = [each.look() for each in self._watched]
            if any(changes):
                self._tell()
            time.sleep(_LOOK_SECONDS)
        deadline = time.monotonic() + _END_SECONDS
        for each in self._watched:
            each.end()
        for each in self._watched:
            each.wait(deadline - time.monotonic())
        self._file.unlink(missing_ok=True)

    def _add(self, processes: Sequence[PlacedProcess]) -> None:
        shares = processors_of(processes)
        known = {each.process.name for each in self._watched}
        for process in processes:
            if process.name not in known:
                log = self._directory / f"{process.name}.log"
                self._watched.append(WatchedProcess(process, log, shares[process.name]))

    def _tell(self) -> None:
        told = {
            each.process.name: {"pid": each.pid, "starts": each.starts} for each in self._watched
        }
        write_whole(self._file, json.dumps(told).encode())
        self._told_to(told)

    def _done(self) -> bool:
        may_end = [each.done for each in self._watched if each.process.may_end]
        return bool(may_end) and all(may_end)


def start(cluster: Cluster) -> None:
    """Starts a supervisor that goes on when this process ends.

    Args:
        cluster: What it shall run.

    Raises:
        StoreError: One runs in its directory.
    """
    directory = cluster.directory
    if supervisor_of(directory) is not None:
        raise StoreError(f"Nodes run in {directory} already: `tfhybrid nodes down` ends them")
    placed_processes.write(directory / "plan.json", processes_of(cluster, cluster.listen))
    with (directory / "supervisor.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "tfhybrid.nodes.local_engine", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def add(cluster: Cluster) -> None:
    """Starts the processes that the cluster file has and the supervisor does not.

    Args:
        cluster: Of a supervisor that runs.

    Raises:
        StoreError: None runs.
    """
    pid = supervisor_of(cluster.directory)
    if pid is None:
        raise StoreError(f"No nodes run in {cluster.directory}: `tfhybrid nodes up` starts them")
    placed_processes.write(cluster.directory / "plan.json", processes_of(cluster, cluster.listen))
    os.kill(pid, signal.SIGHUP)


def supervisor_of(directory: Path) -> int | None:
    """Returns the process that watches over nodes in a directory, if one lives."""
    try:
        with (directory / "lock").open("r+") as lock:
            asked = fcntl.lockf  # the lock is one of fcntl: it is gone with the process
            try:
                asked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return int(lock.read() or 0) or None
            return None
    except FileNotFoundError:
        return None


def stop(cluster: Cluster) -> None:
    """Ends the nodes of a cluster, and waits until they are gone.

    Raises:
        StoreError: None run, or they do not end.
    """
    directory = cluster.directory
    pid = supervisor_of(directory)
    if pid is None:
        raise StoreError(f"No nodes run in {directory}")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 2 * _END_SECONDS
    while supervisor_of(directory) is not None:
        if time.monotonic() > deadline:
            raise StoreError(f"The supervisor, pid {pid}, does not end; see {directory}")
        time.sleep(_LOOK_SECONDS)


def run(
    directory: Path,
    processes: Sequence[PlacedProcess],
    tell: Callable[[dict[str, Any]], object] = lambda _: None,
) -> None:
    """Runs processes until SIGTERM or SIGINT comes, or all that may end are done.

    Args:
        directory: Of logs and `processes.json`; no other supervisor runs there.
        processes: What to run.
        tell: As of `Supervisor`.

    Raises:
        StoreError: Another one runs there.
    """
    with (directory / "lock").open("a+") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"Another supervisor runs in {directory}") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        supervisor = Supervisor(directory, processes, tell)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, supervisor.stop)
        signal.signal(signal.SIGHUP, supervisor.add)
        with contextlib.suppress(KeyboardInterrupt):
            supervisor.run()


def main() -> None:
    """Supervises what `plan.json` says until SIGTERM."""
    directory = Path(sys.argv[1])
    set_up_logging()
    run(directory, placed_processes.read(directory / "plan.json"))


if __name__ == "__main__":
    main()
