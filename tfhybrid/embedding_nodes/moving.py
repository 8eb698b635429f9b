"""Moves of shards to other embedding nodes, between two steps of a job.

The trainers wait meanwhile, with all updates applied. The new node copies the shard's store and
recovers the copy, as the next run of a killed job would. Then the metadata node stores the new
owner. Before that moment the job has the old node's rows, after it the new node's. Trainers connect
to the new node before their next step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfhybrid.cluster.balance import Move
from tfhybrid.cluster.metadata_node import MetadataNode
from tfhybrid.cluster.registration import ClusterMember
from tfhybrid.core.engine import Engine
from tfhybrid.embedding_nodes.embedding_node import JobConnection
from tfhybrid.embedding_nodes.node_session import JobOnNodes, NodeSession, begin_shard
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.embedding_nodes.owned_store import OwnedStore
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc.calls import Caller

_log = logging.getLogger("tfhybrid.embedding_nodes")

_SETTLE_SECONDS = 30.0


class UndecidedError(StoreError):
    """Failure of a move after which nobody knows which of two nodes owns a shard.

    The job must end.
    """


class Mover:
    """Mover of a job's shards to other nodes when nodes register or drain.

    Only rank 0 has one. It moves shards between two steps, while all ranks wait.

    Args:
        engine: Engine of rank 0.
        member: This process.
        job: The job.
    """

    def __init__(self, engine: NodesEngine, member: ClusterMember, job: JobOnNodes) -> None:
        self._engine = engine
        self._member = member
        self._job = job

    def planned(self) -> list[Move]:
        """Returns the moves that the metadata node proposes, in the order in which to make them.

        Returns none, and logs a warning, if the metadata node cannot be reached or fails.
        """
        try:
            with contextlib.closing(self._call()) as metadata:
                return metadata.call(MetadataNode.plan)
        except TfhybridError as error:
            _log.warning("No shard can move: %s", error)
            return []

    def move(self, nodes: NodeSession, planned: Sequence[Move]) -> NodeSession:
        """Moves shards, while all ranks wait between two steps with all updates applied.

        The first move that fails is logged. This move and all later ones are left out.

        Args:
            nodes: Nodes of the job before the moves.
            planned: Moves to make, in order.

        Returns:
            The nodes after the moves that succeeded.

        Raises:
            UndecidedError: Nobody knows whether a shard has moved. The job must end.
        """
        for each in planned:
            try:
                nodes = self._moved(nodes, each)
            except UndecidedError:
                raise
            except TfhybridError as error:
                _log.warning("Shard %d stays on %s: %s", each.shard, each.origin, error)
                break
            _log.info("Shard %d has moved from %s to %s", each.shard, each.origin, each.to)
        return nodes

    def _moved(self, nodes: NodeSession, planned: Move) -> NodeSession:
        with contextlib.closing(self._call()) as metadata:
            view = metadata.call(MetadataNode.view)
        nodes = dataclasses.replace(nodes, allocation_epoch=view.epoch)
        address = view.nodes[planned.to].address
        peer = self._member.peer(planned.to, address)
        target = begin_shard(nodes, planned.shard, peer, self._member, self._job)
        return move_shard(
            self._engine,
            nodes,
            planned.shard,
            target,
            address,
            lambda: self.commit(planned, view.epoch),
        )

    def commit(self, planned: Move, allocation_epoch: int) -> int:
        """Has the metadata node store the new owner of a shard.

        Waits up to 30 s if the answer is lost.

        Args:
            planned: The move.
            allocation_epoch: Allocation epoch for which it was planned.

        Returns:
            The new allocation epoch.

        Raises:
            UndecidedError: Nobody can tell whether the new owner is stored, because the metadata
                node does not answer.
            TfhybridError: The new owner is not stored, and a lost request cannot store it later.
        """
        try:
            with contextlib.closing(self._call()) as metadata:
                return metadata.call(MetadataNode.move, planned, allocation_epoch)
        except TfhybridError as error:
            moved = self._settle(planned)
            if moved is None:
                raise
            _log.warning("The new owner is stored, though the answer was lost: %s", error)
            return moved

    def _settle(self, planned: Move) -> int | None:
        """Returns the allocation epoch if a move is stored; otherwise prevents it, returns `None`.

        A request whose answer was lost may still arrive. The metadata node refuses it once the
        allocation epoch is another one, so this changes it by a move from the owner to itself.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                with contextlib.closing(self._call()) as metadata:
                    view = metadata.call(MetadataNode.view)
                    if view.owners[planned.shard] == planned.to:
                        return view.epoch
                    stays = dataclasses.replace(planned, to=planned.origin)
                    metadata.call(MetadataNode.move, stays, view.epoch)
                    return None
            except TfhybridError as error:
                if time.monotonic() > deadline:
                    raise UndecidedError(
                        f"Shard {planned.shard} belongs to {planned.origin} or {planned.to}. Only "
                        f"the metadata node knows to which, and it does not answer: {error}"
                    ) from error
                time.sleep(0.2)

    def _call(self) -> Caller:
        return self._member.call_metadata()


def move_shard(
    engine: NodesEngine,
    nodes: NodeSession,
    shard: int,
    target: Caller,
    address: tuple[str, int],
    commit: Callable[[], int],
) -> NodeSession:
    """Moves a shard. Only rank 0 calls it, while all ranks wait between two steps.

    Args:
        engine: Engine of rank 0. All ranks have waited for all updates.
        nodes: Nodes of the job before the move.
        shard: Number of the shard.
        target: Connection to the new node, made by `begin_shard`; closed here if the shard does not
            move, else `engine.calls` owns it.
        address: Host and port of the new node.
        commit: Function that has the metadata node store the new owner, and returns the new
            allocation epoch.

    Returns:
        The nodes after the move. The old node has closed its store.

    Raises:
        UndecidedError: `commit` raised it. Either node may own the shard, and the job must end.
        TfhybridError: The shard has not moved. The job can train on.
    """
    calls = engine.calls
    try:
        for name in engine.tables:
            calls[shard].call(OwnedStore.wait, *engine.reached(name))
        opening = engine.opening()
        versions = calls[shard].call(OwnedStore.versions)
        target.call(JobConnection.take_over, nodes.names[shard], nodes.addresses[shard])
        target.call(OwnedStore.recover_store)
        target.call(Engine.forget_updates)
        for call in opening:
            target.ask(call)
        copied = target.call(OwnedStore.versions)
        if copied != versions:
            raise StoreError(
                f"The copy on {target.peer} must have the versions {versions}. Received: {copied}"
            )
    except BaseException:
        _discard(target)
        raise
    try:
        allocation_epoch = commit()
    except TfhybridError as error:
        if isinstance(error, UndecidedError):
            target.close()
        else:
            _discard(target)
        raise
    except BaseException:
        target.close()
        raise
    old = calls.replace(shard, target)
    _discard(old)
    engine.rows_have_moved()
    return dataclasses.replace(
        nodes,
        names=_with(nodes.names, shard, target.peer),
        addresses=_with(nodes.addresses, shard, address),
        allocation_epoch=allocation_epoch,
    )


def _discard(node: Caller) -> None:
    """Has a node delete its copy of a shard that it does not own, and closes the connection."""
    with contextlib.suppress(TfhybridError):  # a dead node's copy is never used
        node.call(OwnedStore.close_store, leave=False)
    node.close()


def _with(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])
