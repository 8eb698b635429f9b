"""How a share of the tables moves to another embedding node between two steps of a job.

The trainers wait meanwhile, with all updates applied. The new node copies the share's store and
opens the copy as the next run of a killed job would. Then the metadata node stores who owns the
share: up to that moment the old node's rows are the job's, from then on the new node's. Trainers
connect to the new node before they go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfhybrid.cluster.balance import Move
from tfhybrid.cluster.membership import View
from tfhybrid.cluster.registration import call_metadata
from tfhybrid.embedding_nodes.node_session import Joined, begin_share
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.tls import Tls

_log = logging.getLogger("tfhybrid.embedding_nodes")

_SETTLE_SECONDS = 30.0


class UndecidedError(StoreError):
    """A job must end: it cannot know which of two nodes owns a share."""


class Mover:
    """Moves the shares of a job when nodes come or drain; on rank 0.

    Args:
        engine: Of rank 0.
        metadata: Address of the metadata node.
        token: Of the cluster.
        name: What this process calls itself.
        silence: Seconds after which a silent node counts as gone.
        job: Its name.
        resumes: Whether the next run of the job shall find its tables.
        tls: What encrypts the connections; `None` for none.
    """

    def __init__(
        self,
        engine: NodesEngine,
        metadata: tuple[str, int],
        token: str,
        name: str,
        silence: float,
        job: str,
        *,
        resumes: bool,
        tls: Tls | None = None,
    ) -> None:
        self._engine = engine
        self._metadata = metadata
        self._token = token
        self._name = name
        self._silence = silence
        self._job = job
        self._resumes = resumes
        self._tls = tls

    def planned(self) -> list[Move]:
        """Returns which shares are to move; none while the metadata node cannot be asked."""
        try:
            with contextlib.closing(self._call()) as metadata:
                return [Move(*each) for each in metadata.ask("plan")[0]]
        except TfhybridError as error:
            _log.warning("No share can move: %s", error)
            return []

    def move(self, nodes: Joined, planned: Sequence[Move]) -> Joined:
        """Moves shares, while all ranks wait between two steps with all updates applied.

        Args:
            nodes: Of the job, as they are.
            planned: What is to move, in order.

        Returns:
            The nodes as they are then. A share that could not move is where it was, and so are
            those behind it.
        """
        for each in planned:
            try:
                nodes = self._moved(nodes, each)
            except UndecidedError:
                raise
            except TfhybridError as error:
                _log.warning("Share %d stays on %s: %s", each.share, each.origin, error)
                break
            _log.info("Share %d has moved from %s to %s", each.share, each.origin, each.to)
        return nodes

    def _moved(self, nodes: Joined, planned: Move) -> Joined:
        with contextlib.closing(self._call()) as metadata:
            view = View.from_json(metadata.ask("view")[0])
        nodes = dataclasses.replace(nodes, epoch=view.epoch)
        address = view.nodes[planned.to].address
        target = begin_share(
            nodes,
            planned.share,
            planned.to,
            address,
            self._token,
            self._name,
            self._silence,
            self._job,
            self._engine.hosts,
            resumes=self._resumes,
            tls=self._tls,
        )
        return move_share(
            self._engine,
            nodes,
            planned.share,
            target,
            address,
            lambda: self.commit(planned, view.epoch),
        )

    def commit(self, planned: Move, epoch: int) -> int:
        """Has the metadata node store the new owner of a share.

        Args:
            planned: What moves.
            epoch: Under which it was planned.

        Returns:
            The new epoch.

        Raises:
            UndecidedError: Whether it is stored cannot be told.
            TfhybridError: It is not, and will not be.
        """
        asked = {"share": planned.share, "origin": planned.origin, "to": planned.to, "epoch": epoch}
        try:
            with contextlib.closing(self._call()) as metadata:
                return int(metadata.ask("move", asked)[0])
        except TfhybridError as error:
            moved = self._settle(planned)
            if moved is None:
                raise
            _log.warning("The new owner is stored, though the answer was lost: %s", error)
            return moved

    def _settle(self, planned: Move) -> int | None:
        """Returns the epoch of a move that was stored. Otherwise sees to it that it never will be.

        A request that was lost may still be on its way. Behind another epoch it is refused.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                with contextlib.closing(self._call()) as metadata:
                    view = View.from_json(metadata.ask("view")[0])
                    if view.owners[planned.share] == planned.to:
                        return view.epoch
                    stays = {"share": planned.share, "origin": planned.origin}
                    metadata.ask("move", stays | {"to": planned.origin, "epoch": view.epoch})
                    return None
            except TfhybridError as error:
                if time.monotonic() > deadline:
                    raise UndecidedError(
                        f"Whether share {planned.share} belongs to {planned.to} or still to "
                        f"{planned.origin}, the metadata node alone can tell: {error}"
                    ) from error
                time.sleep(0.2)

    def _call(self) -> Caller:
        return call_metadata(self._metadata, self._token, self._name, self._tls)


def move_share(
    engine: NodesEngine,
    nodes: Joined,
    share: int,
    target: Caller,
    address: tuple[str, int],
    commit: Callable[[], int],
) -> Joined:
    """Moves a share; on rank 0, while all ranks wait between two steps.

    Args:
        engine: Of rank 0. All ranks have waited for all updates.
        nodes: Of the job, as they are.
        share: What moves.
        target: To the new node, on which the share was begun (`joining.begin_share`). Closed here
            if the share does not move.
        address: Of the new node.
        commit: Has the metadata node store the new owner; returns the epoch.

    Returns:
        The nodes as they are then.

    Raises:
        UndecidedError: As of `commit`. Both nodes have the share.
        TfhybridError: The share has not moved, and the job can go on.
    """
    calls = engine.calls
    try:
        for name in engine.tables:
            calls.ask(share, "wait", engine.named(name))
        opening = calls.ask(share, "opening", {})[0]
        versions = calls.ask(share, "versions", {})[0]
        source = {
            "address": list(nodes.addresses[share]),
            "node": nodes.names[share],
            "session": nodes.session,
            "share": share,
        }
        target.ask("take_over", source)
        target.ask("recover_store", {})
        target.ask("forget_updates", {})
        for call, its in opening:
            steps = {"steps": engine.steps_of(its["name"], its["tables"])} if "name" in its else {}
            target.ask(call, its | steps)
        found = target.ask("versions", {})[0]
        if found != versions:
            raise StoreError(f"{target.peer} should have tables at {versions}. Received: {found}")
    except BaseException:
        _discard(target)
        raise
    try:
        epoch = commit()
    except TfhybridError as error:
        if isinstance(error, UndecidedError):
            target.close()
        else:
            _discard(target)
        raise
    except BaseException:
        target.close()
        raise
    old = calls.replace(share, target)
    _discard(old)
    engine.rows_have_moved()
    return dataclasses.replace(
        nodes,
        names=_with(nodes.names, share, target.peer),
        addresses=_with(nodes.addresses, share, address),
        epoch=epoch,
    )


def _discard(node: Caller) -> None:
    """Has a node forget a share that it does not own."""
    with contextlib.suppress(TfhybridError):  # it has died, and its copy counts for nothing
        node.ask("close_store", {"leave": False})
    node.close()


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
