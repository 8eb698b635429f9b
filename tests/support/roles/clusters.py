"""Clusters of real nodes: their files, what runs of them, and kill -9."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.certificates.authority import variables_of
from tests.support.free_ports import two_free_ports
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.node_options import read_token
from tfhybrid.cluster.registration import ClusterMember
from tfhybrid.embedding_nodes.node_session import NodeSession, find_nodes
from tfhybrid.errors import PeerDiedError
from tfhybrid.rpc.tls import Tls
from tfhybrid.settings import TlsFiles


@contextlib.contextmanager
def own_memory() -> Iterator[None]:
    """Has nodes that are started meanwhile keep stores where no other job looks for dead ones."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-test-") as directory,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("TFHYBRID_SHM_DIR", directory)
        yield


@contextlib.contextmanager
def certified(files: TlsFiles) -> Iterator[None]:
    """Has nodes and jobs that are started meanwhile speak TLS."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in variables_of(files).items():
            patched.setenv(name, value)
        yield


def write_cluster(folder: Path, embedding: int, more: str = "", shards: int = 0) -> Cluster:
    """Writes a cluster file with ports that are free, and reads it; a shard per node by default."""
    port = two_free_ports()
    path = folder / "cluster.yaml"
    path.write_text(
        f"port: {port}\nstatus_port: {port + 1}\n"
        f"roles:\n  embedding: {{count: {embedding}, shards: {shards or embedding}}}\n{more}"
    )
    return Cluster.read(path)


def pid_of(cluster: Cluster, name: str) -> int | None:
    return json.loads((cluster.directory / "processes.json").read_text())[name]["pid"]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for a condition; a metadata node that is not back yet is waited for, too."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(PeerDiedError):
            if condition():
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def node(cluster: Cluster, name: str) -> dict:
    return next(each for each in launching.status(cluster)["nodes"] if each["name"] == name)


def killed(cluster: Cluster, name: str) -> None:
    """Kills a node, and waits until the supervisor has started it again."""
    pid = pid_of(cluster, name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid_of(cluster, name) not in (pid, None))


def found(cluster: Cluster, tls: Tls | None = None) -> NodeSession:
    """The nodes of a cluster, as a trainer finds them."""
    return find_nodes(member_of(cluster, "a test", tls=tls))


def member_of(
    cluster: Cluster, name: str, silence: float = 60.0, tls: Tls | None = None
) -> ClusterMember:
    """This process as a member of a cluster, under a name."""
    address = cluster.listen, cluster.port
    return ClusterMember(address, read_token(cluster.token_file), name, silence, tls)


def logged(cluster: Cluster, name: str, text: str) -> None:
    """Waits until a node has logged a text."""
    until(lambda: text in (cluster.directory / f"{name}.log").read_text())
