"""How host 0 and the embedding nodes of a job that died come to one version.

A trainer or a node may have died between two of them: one has applied an update that another has
only staged. What it staged lies in its mailbox; it needs the numbers of the step alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfhybrid.core.engine import Engine
from tfhybrid.core.store_token import host_of, run_of
from tfhybrid.embedding_nodes.node_calls import NodeCalls
from tfhybrid.errors import StoreError, TfhybridError


def come_together(engine: Engine, calls: NodeCalls, run: int, first: int) -> None:
    """Has the nodes recover their stores, and brings all to the newest version.

    Args:
        engine: Of rank 0, whose store is recovered.
        calls: To the nodes.
        run: That made the store of host 0.
        first: The host number of the first node.

    Raises:
        StoreError: A node has no store of that run, or cannot catch up.
    """
    try:
        found = calls.results("recover_store", {})
    except TfhybridError as error:
        raise StoreError(f"An embedding node has nothing to go on with. {error}") from error
    for node, its in enumerate(found):
        if (run_of(its["token"]), host_of(its["token"])) != (run, first + node):
            raise StoreError("The embedding nodes hold tables of another run of the job")
    own = engine.store_versions()
    versions: list[Mapping[str, int]] = [own, *(its["versions"] for its in found)]
    if len({tuple(sorted(each)) for each in versions}) > 1:
        raise StoreError("The embedding nodes hold other tables than the trainers")
    newest = {table: max(each[table] for each in versions) for table in own}
    behind = [place for place, each in enumerate(versions) if each != newest]
    ahead = [place for place in range(len(versions)) if place not in behind]
    if not ahead:
        raise StoreError("Each of trainers and embedding nodes lacks an update of another one")
    if not behind:
        return
    updates = engine.last_updates()
    if ahead[0] > 0:
        updates = calls.ask(ahead[0] - 1, "last_updates", {})[1]["updates"]
    for place in behind:
        if place == 0:
            Engine.roll_forward(engine, updates)  # this host alone
            reached: Mapping[str, int] = engine.store_versions()
        else:
            reached = calls.ask(place - 1, "roll_forward", {}, {"updates": updates})[0]
        if reached != newest:
            raise StoreError("An embedding node lacks updates that cannot be repeated")
