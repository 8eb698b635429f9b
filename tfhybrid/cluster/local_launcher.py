"""Launcher `local`: starts, watches and restarts processes on this machine.

    python -m tfhybrid.cluster.local_launcher DIRECTORY

A supervisor holds a lock on `DIRECTORY/lock` while it lives. The kernel ends its processes when it
dies. `DIRECTORY/processes.json` lists the running processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfhybrid.cluster import placed_processes
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.node_options import set_up_logging
from tfhybrid.cluster.placed_processes import PlacedProcess, processes_of
from tfhybrid.cluster.processors import processors_of
from tfhybrid.cluster.watched_process import WatchedProcess
from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import StoreError

_log = logging.getLogger("tfhybrid.cluster")

_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0


class Supervisor:
    """Runner of processes on this machine, which restarts each one that ends.

    A process with `may_end` is done when it ends with status 0, and is not restarted then. Not
    thread-safe, but `stop` and `add` may be signal handlers.

    Args:
        directory: Existing directory of the logs, of `processes.json`, and of the `plan.json` that
            `add` announces.
        processes: Processes to run.
        tell: Function that gets the contents of `processes.json` after each change. Default: none.

    Raises:
        ConfigError: A process needs more processors than there are, or a NUMA node that does not
            exist.
    """

    def __init__(
        self,
        directory: Path,
        processes: Sequence[PlacedProcess],
        tell: Callable[[dict[str, Any]], object] = lambda _: None,
    ) -> None:
        self._callback = tell
        self._directory = directory
        self._file = directory / "processes.json"
        self._watched: list[WatchedProcess] = []
        self._add(processes)
        self._stopping = False
        self._adding = False

    def stop(self, *_: object) -> None:
        """Makes `run` end all processes and return.

        Also a signal handler; ignores its arguments.
        """
        self._stopping = True

    def add(self, *_: object) -> None:
        """Makes `run` read the directory's `plan.json` and start the processes that are new in it.

        The caller writes all processes to the file, with `placed_processes.write`. Also a signal
        handler; ignores its arguments.
        """
        self._adding = True

    def run(self) -> None:
        """Runs the processes until `stop`, or until all that may end are done, then ends them.

        After an error they run until this thread ends.

        Raises:
            OSError: `plan.json` cannot be read, or `processes.json` not be removed.
            ConfigError: An added process needs more processors than there are, or a NUMA node that
                does not exist.
            CorruptFileError: `plan.json` is damaged.
            ValueError, KeyError, TypeError: `plan.json` is not a list of processes.
        """
        while not self._stopping and not self._done():
            if self._adding:
                self._adding = False
                self._add(placed_processes.read(self._directory / "plan.json"))
            changes = [each.look() for each in self._watched]
            if any(changes):
                self._report()
            time.sleep(_LOOK_SECONDS)
        deadline = time.monotonic() + _END_SECONDS
        for each in self._watched:
            each.end()
        for each in self._watched:
            each.wait(deadline - time.monotonic())
        self._file.unlink(missing_ok=True)

    def _add(self, processes: Sequence[PlacedProcess]) -> None:
        processors = processors_of(processes)
        names = {each.process.name for each in self._watched}
        for process in processes:
            if process.name not in names:
                log = self._directory / f"{process.name}.log"
                self._watched.append(WatchedProcess(process, log, processors[process.name]))

    def _report(self) -> None:
        states = {
            each.process.name: {"pid": each.pid, "starts": each.starts} for each in self._watched
        }
        try:
            write_whole(self._file, json.dumps(states).encode())
        except OSError as error:  # it only informs; the next change writes it again
            _log.error("%s could not be written, the processes go on: %s", self._file, error)
        self._callback(states)

    def _done(self) -> bool:
        may_end = [each.done for each in self._watched if each.process.may_end]
        return bool(may_end) and all(may_end)


def start(cluster: Cluster) -> None:
    """Starts a supervisor that outlives this process.

    Args:
        cluster: Cluster to run.

    Raises:
        StoreError: A supervisor already runs in the directory of the cluster.
        OSError: A file of the directory cannot be written.
    """
    directory = cluster.directory
    if supervisor_of(directory) is not None:
        raise StoreError(f"Nodes already run in {directory}: `tfhybrid nodes down` stops them")
    placed_processes.write(directory / "plan.json", processes_of(cluster, cluster.listen))
    with (directory / "supervisor.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "tfhybrid.cluster.local_launcher", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def add(cluster: Cluster) -> None:
    """Makes the running supervisor start the new processes of a cluster file; does not wait.

    Args:
        cluster: Cluster file with the new processes.

    Raises:
        StoreError: No supervisor runs in the directory of the cluster.
        OSError: A file of the directory cannot be written.
    """
    pid = supervisor_of(cluster.directory)
    if pid is None:
        raise StoreError(f"No nodes run in {cluster.directory}: `tfhybrid nodes up` starts them")
    placed_processes.write(cluster.directory / "plan.json", processes_of(cluster, cluster.listen))
    os.kill(pid, signal.SIGHUP)


def supervisor_of(directory: Path) -> int | None:
    """Returns the process id of the supervisor of a directory, or `None` if none runs yet.

    Any process may call it. The supervisor is the process that starts and watches the nodes.

    Args:
        directory: Directory of the cluster, with the supervisor's lock.
    """
    try:
        with (directory / "lock").open("r+") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with its process
            except OSError:
                return int(lock.read() or 0) or None
            return None
    except FileNotFoundError:
        return None


def stop(cluster: Cluster) -> None:
    """Makes the supervisor of a cluster stop all nodes, and waits until the supervisor has ended.

    The supervisor ends after its nodes. Any process of the same user on this host may call it.

    Args:
        cluster: Cluster to stop.

    Raises:
        StoreError: No supervisor runs, or the supervisor did not end within 20 s.
    """
    directory = cluster.directory
    pid = supervisor_of(directory)
    if pid is None:
        raise StoreError(f"No nodes run in {directory}")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 2 * _END_SECONDS
    while supervisor_of(directory) is not None:
        if time.monotonic() > deadline:
            raise StoreError(
                f"The supervisor, pid {pid}, has not ended within {2 * _END_SECONDS:.0f} s. Read "
                f"the logs in {directory}"
            )
        time.sleep(_LOOK_SECONDS)


def run(
    directory: Path,
    processes: Sequence[PlacedProcess],
    tell: Callable[[dict[str, Any]], object] = lambda _: None,
) -> None:
    """Supervises processes until SIGTERM or SIGINT, or until all that may end are done.

    Sets signal handlers while it runs, so only the main thread may call it. SIGHUP starts the
    processes that are new in the directory's `plan.json`.

    Args:
        directory: Existing directory of the lock, the logs, `processes.json` and `plan.json`.
        processes: Processes to run.
        tell: Function that gets the contents of `processes.json` after each change. Default: none.

    Raises:
        StoreError: Another supervisor runs in the directory.
        OSError: `lock` cannot be written, `plan.json` not be read, or `processes.json` not be
            removed.
        ConfigError: A process needs more processors than there are, or a NUMA node that does not
            exist.
        CorruptFileError: `plan.json` is damaged.
        ValueError, KeyError, TypeError: `plan.json` is not a list of processes.
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
        handlers = {
            signal.SIGTERM: supervisor.stop,
            signal.SIGINT: supervisor.stop,
            signal.SIGHUP: supervisor.add,
        }
        before = {number: signal.signal(number, each) for number, each in handlers.items()}
        try:
            with contextlib.suppress(KeyboardInterrupt):
                supervisor.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def main() -> None:
    """Runs the processes listed in a folder's `plan.json`; argument 1 is the folder.

    Only the main thread may call it.

    Raises:
        StoreError: Another supervisor runs in the folder.
        OSError: `lock` cannot be written, `plan.json` not be read, or `processes.json` not be
            removed.
        ConfigError: A process needs more processors than there are, or a NUMA node that does not
            exist.
        CorruptFileError: `plan.json` is damaged.
        ValueError, KeyError, TypeError: `plan.json` is not a list of processes, or
            `TFHYBRID_LOG_LEVEL` names no level.
    """
    directory = Path(sys.argv[1])
    set_up_logging()
    run(directory, placed_processes.read(directory / "plan.json"))


if __name__ == "__main__":
    main()
