"""Detection of embedding nodes that are silent while a rank waits for their rows or updates."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfhybrid.core.engine import Engine
from tfhybrid.embedding_nodes.embedding_node import JobConnection
from tfhybrid.embedding_nodes.logged_waits import LoggedWaits
from tfhybrid.errors import TfhybridError
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.peer import Peer

_ANSWER_SECONDS = 2.0
_KNOCKING_THREADS = 16


class NodeWaits(LoggedWaits):
    """Thread that logs which embedding nodes are silent while this rank waits for rows or updates.

    Args:
        engine: Engine of this rank, with an open store.
        nodes: Function that returns the embedding nodes of the job now. The thread calls it.
        name: Name of this process, for the nodes' logs.
    """

    def __init__(self, engine: Engine, nodes: Callable[[], Sequence[Peer]], name: str) -> None:
        self._nodes = nodes
        self._name = name
        super().__init__(engine)

    def _wait(self) -> int:
        """Returns the number of this rank's wait, from 1 on; 0 if it does not wait."""
        standing = self._engine.standing()
        return int(standing.waits_begun if standing.waits_begun > standing.waits_ended else 0)

    def _awaited(self) -> str:
        silent = self._silent()
        if not silent:
            return ""
        return "rows or updates of embedding nodes. These nodes do not answer: " + "; ".join(silent)

    def _silent(self) -> list[str]:
        """Returns why each node that does not answer did not."""
        nodes = {peer.name: peer for peer in self._nodes()}.values()
        with ThreadPoolExecutor(_KNOCKING_THREADS) as threads:
            return [each for each in threads.map(self._knock, nodes) if each is not None]

    def _knock(self, node: Peer) -> str | None:
        quick = dataclasses.replace(node, patience=_ANSWER_SECONDS, limit=_ANSWER_SECONDS)
        try:
            with contextlib.closing(quick.caller(Handshake(Purpose.CALLS, self._name))) as caller:
                caller.call(JobConnection.describe)
        except TfhybridError as error:
            return str(error)
        return None
