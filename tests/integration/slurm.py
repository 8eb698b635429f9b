"""A real Slurm cluster whose nodes are the hosts of hosts.py. Needs munge, slurmctld and slurmd."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support import hosts as several
from tests.support.hosts import Hosts

_STARTED_SECONDS = 120
_CONFIGURATION = """
ClusterName=tests
SlurmctldHost=h1({address})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName={nodes} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing() -> str | None:
    """Returns why there can be no cluster here, or `None`."""
    absent = [tool for tool in ("munged", "slurmctld", "slurmd") if not shutil.which(tool)]
    return several.missing() or (f"missing: {', '.join(absent)}" if absent else None)


class Cluster:
    """Slurm on hosts of two cores each; commands are given on the first.

    Args:
        hosts: Its nodes.
        folder: An empty folder for its files.
    """

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts = hosts
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        (folder / "slurm.conf").write_text(
            _CONFIGURATION.format(
                address=hosts.address("h1"), folder=folder, nodes=",".join(hosts.names)
            )
        )
        # No plugin that would use control groups is chosen, yet slurmd looks for them.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "state").mkdir()
        self._start_munge()
        self._start("h1", "slurmctld", "-D", "-c")
        for name in hosts.names:
            (folder / f"spool.{name}").mkdir()
            hosts.run(name, "mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup")
            self._start(name, "slurmd", "-D", "-N", name)
        self._wait_for(lambda: self.run("sinfo", "-h", "-o", "%T").split() == ["idle"])

    def run(self, *command: str, timeout: float = 240) -> str:
        """Runs a command on the first node; returns what it wrote.

        Raises:
            AssertionError: It failed.
        """
        done = self.start(*command)
        written, _ = done.communicate(timeout=timeout)
        assert done.returncode == 0, written
        return written

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Starts a command on the first node; standard output has what it writes."""
        return subprocess.Popen(
            [*self._hosts.enter("h1"), *command],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def remove(self) -> None:
        """Ends the daemons."""
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()

    @property
    def _environment(self) -> dict[str, str]:
        return {**several.ACTIVE, "SLURM_CONF": str(self._folder / "slurm.conf")}

    def _start_munge(self) -> None:
        key, socket = self._folder / "munge.key", self._folder / "munge.socket"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(64))
        files = {"pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "munge.seed"}
        options = [f"--{option}={self._folder / name}" for option, name in files.items()]
        own = ("--foreground", "--force", f"--key-file={key}", f"--socket={socket}")
        self._start("h1", "munged", *own, *options)
        self._wait_for(socket.exists)

    def _start(self, host: str, *command: str) -> None:
        with (self._folder / f"{command[0]}.{host}.log").open("wb") as log:
            daemon = subprocess.Popen(
                [*self._hosts.enter(host), *command],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._daemons.append(daemon)

    def _wait_for(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + _STARTED_SECONDS
        while not ready():
            logs = "".join(log.read_text()[-2000:] for log in self._folder.glob("*.log"))
            assert time.monotonic() < end, logs
            time.sleep(0.2)


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[Cluster]:
    """Yields a cluster that is removed when the block ends."""
    with (
        several.hosts(nodes) as hosts,
        tempfile.TemporaryDirectory(prefix="tfhybrid-slurm-") as folder,
    ):
        os.chmod(folder, 0o755)  # munged trusts no folder that others may write
        made = Cluster(hosts, Path(folder))
        try:
            yield made
        finally:
            made.remove()
