"""Starting, asking and ending a cluster of nodes, whatever engine runs it."""

from __future__ import annotations

import os
import time
from typing import Any

from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.nodes import local_engine
from tfhybrid.nodes.cluster_file import READERS, Cluster
from tfhybrid.nodes.node_options import read_token
from tfhybrid.nodes.placed_processes import processes_of
from tfhybrid.nodes.registration import call_metadata, look_up
from tfhybrid.nodes.row_service import new_token

_START_SECONDS = 60.0


def up(cluster: Cluster) -> None:
    """Starts the nodes of a cluster, and returns when all that own slots are ready.

    Args:
        cluster: What to start.

    Raises:
        StoreError: They run already, or do not get ready; what was started is ended then.
    """
    cluster.directory.mkdir(parents=True, exist_ok=True)
    if not cluster.token_file.exists():
        descriptor = os.open(cluster.token_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w") as file:
            file.write(new_token())
    local_engine.start(cluster.directory, processes_of(cluster))
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            left = max(deadline - time.monotonic(), 0.0)
            view = look_up(
                _metadata(cluster), read_token(cluster.token_file), "tfhybrid nodes up", left
            )
            readers = cluster.names(READERS) if READERS in cluster.roles else []
            missing = sorted(set(readers) - set(view.living(READERS)))
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
    caller = call_metadata(_metadata(cluster), read_token(cluster.token_file), "tfhybrid nodes")
    try:
        found: dict[str, Any] = caller.ask("status")[0]
        return found
    finally:
        caller.close()


def drain(cluster: Cluster, name: str) -> None:
    """Has a node begin no other job.

    Raises:
        StoreError: There is no such node, or the metadata node cannot be reached.
    """
    caller = call_metadata(_metadata(cluster), read_token(cluster.token_file), "tfhybrid nodes")
    try:
        caller.ask("drain", {"name": name})
    finally:
        caller.close()


def down(cluster: Cluster) -> None:
    """Ends the nodes of a cluster, and waits until they are gone.

    Raises:
        StoreError: None run.
    """
    local_engine.stop(cluster.directory)


def _metadata(cluster: Cluster) -> tuple[str, int]:
    return cluster.listen, cluster.port
