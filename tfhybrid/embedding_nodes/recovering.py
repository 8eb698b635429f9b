"""Recovery of host 0 and the embedding nodes of a dead job to one common version.

The job may have died while one process had applied an update that another had only staged. A staged
update lies in that process's mailbox. To apply it, the process needs only the numbers of the step.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tfhybrid.core.engine import Engine
from tfhybrid.core.store_token import host_of, run_of
from tfhybrid.embedding_nodes.node_calls import NodeCalls
from tfhybrid.embedding_nodes.owned_store import OwnedStore
from tfhybrid.errors import StoreError, TfhybridError


def come_together(engine: Engine, calls: NodeCalls, run: int, first: int) -> None:
    """Recovers the stores of all nodes after a restart, and repeats updates that some of them lack.

    Rank 0 calls it, before training begins. Waits for all nodes.

    Args:
        engine: Engine of rank 0, whose own store is recovered already.
        calls: Connections to the nodes.
        run: Number of the run that created host 0's store; the nodes' stores must have it too.
        first: Host number of the first node.

    Raises:
        StoreError: A node has no store of that run, or lacks an update that cannot be repeated.
        TfhybridError: A node is lost meanwhile, or cannot repeat its updates.
    """
    versions = _recovered_versions(engine, calls, run, first)
    newest = {table: max(each[table] for each in versions) for table in versions[0]}
    behind = [member for member, each in enumerate(versions) if each != newest]  # 0 is host 0
    ahead = [member for member in range(len(versions)) if member not in behind]
    if not ahead:
        raise StoreError(
            "No trainer or embedding node has all updates: each lacks one that another has"
        )
    if not behind:
        return
    updates = engine.last_updates()
    if ahead[0] > 0:
        updates = calls[ahead[0] - 1].call(Engine.last_updates)
    for member in behind:
        reached = _repeat(engine, calls, member, updates)
        if reached != newest:
            raise StoreError(
                "A trainer or an embedding node lacks updates that cannot be repeated. "
                f"Expected versions: {newest}. Received: {dict(reached)}"
            )


def _recovered_versions(
    engine: Engine, calls: NodeCalls, run: int, first: int
) -> list[dict[str, int]]:
    """Recovers the nodes' stores; returns versions by table, of host 0 and then of each node."""
    try:
        answers = calls.each(OwnedStore.recover_store)
    except TfhybridError as error:
        raise StoreError(f"An embedding node has no store to recover: {error}") from error
    for node, answer in enumerate(answers):
        if (run_of(answer.token), host_of(answer.token)) != (run, first + node):
            raise StoreError("The embedding nodes hold tables of another run of the job")
    versions = [engine.store_versions(), *(answer.versions for answer in answers)]
    if len({tuple(sorted(each)) for each in versions}) > 1:
        raise StoreError("The embedding nodes hold other tables than the trainers")
    return versions


def _repeat(
    engine: Engine, calls: NodeCalls, member: int, updates: np.ndarray
) -> Mapping[str, int]:
    """Has host 0 (member 0) or a node apply its staged updates; returns its versions by table."""
    if member > 0:
        node = calls[member - 1]
        node.call(Engine.roll_forward, updates)
        return node.call(Engine.store_versions)
    Engine.roll_forward(engine, updates)  # this host alone
    return engine.store_versions()
