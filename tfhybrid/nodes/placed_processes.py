"""What an engine is to start: processes with names, and where they may run."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from tfhybrid.core.whole_file import write_whole
from tfhybrid.nodes.cluster_file import OWNERS, READERS, Cluster

METADATA = "metadata"  # the name of that process
_MODULES = {OWNERS: "tfhybrid.nodes.embedding", READERS: "tfhybrid.data.node"}


@dataclasses.dataclass(frozen=True)
class PlacedProcess:
    """A process that is started, watched and started again.

    Args:
        name: Unique; its log is called so.
        command: What it runs.
        environment: Beside what the engine has.
        cpus: How many processors it may use; 0 for all.
        numa: The NUMA node on which it runs; `None` for any.
        may_end: Whether it is done when it ends with status 0; otherwise it is started again.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    cpus: int = 0
    numa: int | None = None
    may_end: bool = False


def processes_of(cluster: Cluster, listen: str) -> list[PlacedProcess]:
    """Returns what a cluster file asks for; the metadata node first.

    Args:
        cluster: What it says.
        listen: The address on which all but the metadata node listen.
    """
    token = str(cluster.token_file)
    metadata = f"{cluster.listen}:{cluster.port}"
    found = [
        PlacedProcess(
            METADATA,
            (
                *(sys.executable, "-m", "tfhybrid.nodes.metadata"),
                *("--state", str(cluster.directory / "state.json"), "--token-file", token),
                *("--owners", ",".join(cluster.owners()), "--listen", cluster.listen),
                *("--port", str(cluster.port), "--status-port", str(cluster.status_port)),
            ),
        )
    ]
    for role, its in cluster.roles.items():
        script = ("--script", its.script) if its.script else ()
        own = ("-m", _MODULES.get(role, ""), "--listen", listen, *script)
        for name in cluster.names(role):
            told = ("--name", name, "--metadata", metadata, "--token-file", token)
            command = its.command or (sys.executable, *own, *told)
            environment = {"TFHYBRID_NODES": metadata, "TFHYBRID_NODES_TOKEN": token}
            environment["TFHYBRID_NODE_NAME"] = name
            if role == READERS:  # TensorFlow, which its script may import, wants no GPU there
                environment["CUDA_VISIBLE_DEVICES"] = ""
            found.append(PlacedProcess(name, command, environment, its.cpus, its.numa))
    return found


def write(path: Path, processes: Iterable[PlacedProcess]) -> None:
    """Writes what `read` returns."""
    content = json.dumps([dataclasses.asdict(each) for each in processes], indent=1)
    write_whole(path, content.encode())


def read(path: Path) -> list[PlacedProcess]:
    """Returns the processes that `write` was given."""
    return [
        PlacedProcess(**{**its, "command": tuple(its["command"])})
        for its in json.loads(path.read_text())
    ]
