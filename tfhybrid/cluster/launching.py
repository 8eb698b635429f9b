"""Start, status, changes and end of a cluster of nodes, with any launcher."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from tfhybrid.cluster import local_launcher, ray_launcher
from tfhybrid.cluster.cluster_file import OWNERS, READERS, Cluster
from tfhybrid.cluster.membership import NodeState
from tfhybrid.cluster.metadata_node import MetadataNode
from tfhybrid.cluster.node_options import make_token, read_token
from tfhybrid.cluster.registration import ClusterMember, look_up
from tfhybrid.errors import ConfigError, StoreError, TfhybridError
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.tls import Tls

_log = logging.getLogger("tfhybrid.cluster")

_START_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_LAUNCHERS = {"local": local_launcher, "ray": ray_launcher}


def up(cluster: Cluster) -> None:
    """Starts the nodes of a cluster and waits until owners of slots and data nodes are ready.

    Args:
        cluster: Cluster to start.

    Raises:
        StoreError: The nodes already run, or were not ready within 60 s. In the second case they
            have been stopped.
        ConfigError: A TLS file cannot be used; or the launcher is `ray`, and Ray is not installed
            or does not use its token.
        OSError: The directory cannot be created, or a file in it cannot be written.
    """
    cluster.directory.mkdir(parents=True, exist_ok=True)
    make_token(cluster.token_file)
    _LAUNCHERS[cluster.launcher].start(cluster)
    deadline = time.monotonic() + _START_SECONDS
    with _own_tls() as tls:
        member = _member(cluster, "tfhybrid nodes up", tls)
        while True:
            try:
                left = max(deadline - time.monotonic(), 0.0)
                view = look_up(member, left)
                missing = sorted(set(cluster.names(READERS)) - set(view.living(READERS)))
                if missing:
                    raise StoreError(f"The data nodes {missing} have not registered")
                return
            except TfhybridError as error:
                if time.monotonic() > deadline:
                    down(cluster)
                    raise StoreError(
                        f"The nodes were not ready within {_START_SECONDS:.0f} s. Read their logs "
                        f"in {cluster.directory}. {error}"
                    ) from error
                time.sleep(0.1)


def status(cluster: Cluster) -> dict[str, Any]:
    """Returns the status of a cluster from its metadata node.

    Args:
        cluster: Cluster to ask.

    Returns:
        `epoch`, the allocation epoch; `nodes`, with state, address and numbers of each;
        `allocation`, the node of each shard; `missing`, the names of the owners that are not ready.

    Raises:
        StoreError: The metadata node cannot be reached.
        ConfigError: The file of the token or a TLS file cannot be read.
    """
    with _metadata_caller(cluster) as caller:
        return caller.call(MetadataNode.status)


def drain(cluster: Cluster, name: str) -> int:
    """Drains a node: it starts no other job, and its shards move to the other embedding nodes.

    Does not wait until a running job has moved the shards.

    Args:
        cluster: Cluster of the node.
        name: Name of the node.

    Returns:
        Number of shards that the running job has yet to move. 0 without a job, because the shards
        have moved already. Also 0 if no other embedding node is ready: then the shards stay, and a
        warning says so.

    Raises:
        StoreError: The node does not exist or is lost, or the metadata node cannot be reached.
        ConfigError: The file of the token or a TLS file cannot be read.
    """
    with _metadata_caller(cluster) as caller:
        caller.call(MetadataNode.drain, name)
        left = caller.call(MetadataNode.balance)
        if not left and name in caller.call(MetadataNode.view).owners:
            _log.warning(
                "The shards of %s stay, because no other embedding node is ready. Add a node with "
                "`tfhybrid nodes add`, or restart %s, so that it serves again",
                name,
                name,
            )
        return len(left)


def add(cluster: Cluster) -> int:
    """Starts the new nodes of an edited cluster file, and plans which shards move to them.

    Waits until the new nodes are ready, but not until a running job has moved its shards.

    Args:
        cluster: Contents of the edited cluster file, with more nodes than run now and the same
            number of shards.

    Returns:
        Number of shards that the running job has yet to move; 0 without a job.

    Raises:
        ConfigError: The launcher is not `local`, or the file of the token or a TLS file cannot be
            read.
        StoreError: The cluster does not run, or the new nodes were not ready within 60 s.
        OSError: A file of the cluster's directory cannot be written.
    """
    if cluster.launcher != "local":
        raise ConfigError(
            "Only the launcher `launcher: local` can add nodes to a running cluster. "
            f"Received: {cluster.launcher!r}"
        )
    local_launcher.add(cluster)
    deadline = time.monotonic() + _START_SECONDS
    with _metadata_caller(cluster) as caller:
        while True:
            nodes = caller.call(MetadataNode.view).nodes
            missing = [
                name
                for name in (*cluster.names(OWNERS), *cluster.names(READERS))
                if name not in nodes or nodes[name].state in (NodeState.REGISTERED, NodeState.LOST)
            ]
            if not missing:
                return len(caller.call(MetadataNode.balance))
            if time.monotonic() > deadline:
                raise StoreError(
                    f"The nodes {missing} were not ready within {_START_SECONDS:.0f} s. Read their "
                    f"logs in {cluster.directory}"
                )
            time.sleep(0.1)


def down(cluster: Cluster) -> None:
    """Stops the nodes of a cluster and waits until the nodes have ended.

    Args:
        cluster: Cluster to stop.

    Raises:
        ConfigError: The launcher is `ray`, and Ray is not installed or does not use its token.
        StoreError: The cluster does not run, did not end in time, or its Ray cluster cannot be
            reached.
        OSError: With `ray`, the list of processes cannot be read.
    """
    _LAUNCHERS[cluster.launcher].stop(cluster)


@contextlib.contextmanager
def _own_tls() -> Iterator[Tls | None]:
    tls = Tls.from_environment()
    try:
        yield tls
    finally:
        if tls is not None:
            tls.close()


@contextlib.contextmanager
def _metadata_caller(cluster: Cluster) -> Iterator[Caller]:
    with (
        _own_tls() as tls,
        contextlib.closing(
            _member(cluster, "tfhybrid nodes", tls).call_metadata(_ANSWER_SECONDS)
        ) as caller,
    ):
        yield caller


def _member(cluster: Cluster, name: str, tls: Tls | None) -> ClusterMember:
    address = cluster.listen, cluster.port
    return ClusterMember(address, read_token(cluster.token_file), name, tls=tls)
