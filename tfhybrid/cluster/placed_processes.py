"""Descriptions of the processes that a launcher starts, with their names and processors."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from tfhybrid.cluster.cluster_file import READERS, Cluster
from tfhybrid.core.checked_object import encoded, without_checksum
from tfhybrid.core.whole_file import write_whole

METADATA = "metadata"  # name of the metadata node's process
_NODE = (sys.executable, "-m", "tfhybrid.cli", "node")


@dataclasses.dataclass(frozen=True)
class PlacedProcess:
    """Process that a launcher starts, watches and restarts.

    Args:
        name: Unique name, also the name of its log file.
        command: Command line.
        environment: Environment variables in addition to the launcher's. Default: none.
        cpus: Number of processors it may use. Default: 0, all of them.
        numa: Number of the NUMA node on which it runs. Default: `None`, any.
        may_end: True if the process is done once it ends with status 0. Default: False, it is
            restarted whenever it ends.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    cpus: int = 0
    numa: int | None = None
    may_end: bool = False


def processes_of(cluster: Cluster, listen: str) -> list[PlacedProcess]:
    """Returns the processes that a launcher starts for a cluster file; starts none itself.

    The metadata node is the first. The others follow in the order of the roles in the file.

    Args:
        cluster: Contents of the cluster file, with address and port of the metadata node.
        listen: Address on which all other nodes listen; each takes a free port.
    """
    token = str(cluster.token_file)
    metadata = f"{cluster.listen}:{cluster.port}"
    processes = [
        PlacedProcess(
            METADATA,
            (
                *(*_NODE, "metadata"),
                *("--state", str(cluster.directory / "state.json"), "--token-file", token),
                *("--owners", ",".join(cluster.owners()), "--listen", cluster.listen),
                *("--port", str(cluster.port), "--status-port", str(cluster.status_port)),
            ),
        )
    ]
    for name_of_role, role in cluster.roles.items():
        script = ("--script", role.script) if role.script else ()
        for name in cluster.names(name_of_role):
            options = ("--name", name, "--metadata", metadata, "--token-file", token)
            command = role.command or (
                *(*_NODE, name_of_role, "--listen", listen),
                *(*script, *options),
            )
            environment = {"TFHYBRID_NODES": metadata, "TFHYBRID_NODES_TOKEN": token}
            environment["TFHYBRID_NODE_NAME"] = name
            if name_of_role == READERS:  # its script may import TensorFlow, which would take GPUs
                environment["CUDA_VISIBLE_DEVICES"] = ""
            processes.append(PlacedProcess(name, command, environment, role.cpus, role.numa))
    return processes


def write(path: Path, processes: Iterable[PlacedProcess]) -> None:
    """Writes processes to a file, which is replaced as a whole.

    Args:
        path: Path of the file.
        processes: Processes that `read` will return.

    Raises:
        OSError: The file cannot be written.
    """
    fields = {"processes": [dataclasses.asdict(each) for each in processes]}
    write_whole(path, encoded(fields, indent=1))


def read(path: Path) -> list[PlacedProcess]:
    """Reads the processes that `write` has written.

    Args:
        path: Path of the file.

    Returns:
        The processes, in the order in which they were written.

    Raises:
        OSError: The file cannot be read.
        CorruptFileError: The file is damaged.
        ValueError, KeyError, TypeError: The file was not written by `write`.
    """
    content = json.loads(path.read_text())
    if isinstance(content, list):  # written by an earlier version
        content = {"processes": content}
    return [
        PlacedProcess(**{**fields, "command": tuple(fields["command"])})
        for fields in without_checksum(content, path)["processes"]
    ]
