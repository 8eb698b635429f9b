"""Starting, asking and ending a cluster of nodes, whatever engine runs it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from tfhybrid.errors import ConfigError, StoreError, TfhybridError
from tfhybrid.nodes import local_engine, ray_engine
from tfhybrid.nodes.calls import Caller
from tfhybrid.nodes.cluster_file import OWNERS, READERS, Cluster
from tfhybrid.nodes.membership import NodeState, View
from tfhybrid.nodes.node_options import make_token, read_token
from tfhybrid.nodes.registration import call_metadata, look_up
from tfhybrid.nodes.tls import Tls

_START_SECONDS = 60.0
_ENGINES = {"local": local_engine, "ray": ray_engine}


def up(cluster: Cluster) -> None:
    """Starts the nodes of a cluster, and returns when owners of slots and data nodes are ready.

    Args:
        cluster: What to start.

    Raises:
        StoreError: They run already, or do not get ready; what was started is ended then.
    """
    cluster.directory.mkdir(parents=True, exist_ok=True)
    make_token(cluster.token_file)
    _ENGINES[cluster.engine].start(cluster)
    deadline = time.monotonic() + _START_SECONDS
    token = read_token(cluster.token_file)
    with _own_tls() as tls:
        while True:
            try:
                left = max(deadline - time.monotonic(), 0.0)
                view = look_up(_metadata(cluster), token, "tfhybrid nodes up", left, tls)
                missing = sorted(set(cluster.names(READERS)) - set(view.living(READERS)))
                if missing:
                    raise StoreError(f"The data nodes {missing} are not there")
                return
            except TfhybridError as error:
                if time.monotonic() > deadline:
                    down(cluster)
                    raise StoreError(
                        f"The nodes did not get ready in {_START_SECONDS:.0f} s; their logs are in "
                        f"{cluster.directory}. {error}"
                    ) from error
                time.sleep(0.1)


def status(cluster: Cluster) -> dict[str, Any]:
    """Returns what the metadata node knows.

    Raises:
        StoreError: It cannot be reached.
    """
    with _asking(cluster) as caller:
        found: dict[str, Any] = caller.ask("status")[0]
        return found


def drain(cluster: Cluster, name: str) -> int:
    """Has a node begin no other job, and give its shares of the tables to the others.

    Args:
        cluster: Of the node.
        name: Of the node.

    Returns:
        How many shares a running job is still to move. Without a job all have moved at once.

    Raises:
        StoreError: There is no such node, or the metadata node cannot be reached.
    """
    with _asking(cluster) as caller:
        caller.ask("drain", {"name": name})
        return len(caller.ask("balance")[0])


def add(cluster: Cluster) -> int:
    """Starts the nodes of a cluster file that do not run, and evens out the shares.

    Args:
        cluster: With more nodes than run. The number of shares must be the same.

    Returns:
        As of `drain`.

    Raises:
        ConfigError: The engine starts no nodes later.
        StoreError: The nodes do not run, or the new ones do not get ready.
    """
    if cluster.engine != "local":
        raise ConfigError(f"engine: local adds nodes. Received: {cluster.engine!r}")
    local_engine.add(cluster)
    deadline = time.monotonic() + _START_SECONDS
    with _asking(cluster) as caller:
        while True:
            nodes = View.from_json(caller.ask("view")[0]).nodes
            waited = [
                name
                for name in (*cluster.names(OWNERS), *cluster.names(READERS))
                if name not in nodes or nodes[name].state in (NodeState.JOINING, NodeState.LOST)
            ]
            if not waited:
                return len(caller.ask("balance")[0])
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{waited} did not get ready in {_START_SECONDS:.0f} s; their logs are in "
                    f"{cluster.directory}"
                )
            time.sleep(0.1)


def down(cluster: Cluster) -> None:
    """Ends the nodes of a cluster, and waits until they are gone.

    Raises:
        StoreError: None run.
    """
    _ENGINES[cluster.engine].stop(cluster)


@contextlib.contextmanager
def _own_tls() -> Iterator[Tls | None]:
    tls = Tls.from_environment()
    try:
        yield tls
    finally:
        if tls is not None:
            tls.close()


@contextlib.contextmanager
def _asking(cluster: Cluster) -> Iterator[Caller]:
    token = read_token(cluster.token_file)
    with (
        _own_tls() as tls,
        contextlib.closing(
            call_metadata(_metadata(cluster), token, "tfhybrid nodes", tls)
        ) as caller,
    ):
        yield caller


def _metadata(cluster: Cluster) -> tuple[str, int]:
    return cluster.listen, cluster.port
