"""Detection of embedding nodes that are silent while a rank waits for their rows or updates."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfhybrid.core.engine import Engine
from tfhybrid.embedding_nodes.embedding_node import JobConnection
from tfhybrid.errors import TfhybridError
from tfhybrid.rpc import messages
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.peer import Peer

_log = logging.getLogger("tfhybrid.embedding_nodes")

_LOOK_SECONDS = 0.25
_ANSWER_SECONDS = 2.0
_KNOCKING_THREADS = 16


class NodeWaits:
    """Thread that logs which embedding nodes are silent while this rank waits for rows or updates.

    It looks after 10, 20, 40 and so on seconds of a wait. It ends when the engine's store is
    closed, or at `stop`.

    Args:
        engine: Engine of this rank, with an open store.
        nodes: Function that returns the embedding nodes of the job now. The thread calls it.
        name: Name of this process, for the nodes' logs.
    """

    def __init__(self, engine: Engine, nodes: Callable[[], Sequence[Peer]], name: str) -> None:
        self._engine = engine
        self._nodes = nodes
        self._name = name
        self._stopping = threading.Event()
        threading.Thread(target=self._run, name="tfhybrid-node-waits", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread soon. Any thread may call it."""
        self._stopping.set()

    def _run(self) -> None:
        with contextlib.suppress(TfhybridError):  # the store is closed
            wait, seconds, logged_at = 0, 0.0, messages.WAIT_SECONDS
            looked = time.monotonic()
            while not self._stopping.wait(_LOOK_SECONDS):
                # A stopped process does not wait, so a longer gap counts as this much.
                now = time.monotonic()
                gap, looked = min(now - looked, _LOOK_SECONDS), now
                waits_now = self._wait()
                if waits_now != wait:
                    wait, seconds, logged_at = waits_now, 0.0, messages.WAIT_SECONDS
                elif wait:
                    seconds += gap
                if wait and seconds >= logged_at:
                    logged_at *= 2
                    silent = self._silent()
                    if silent and self._wait() == wait:
                        _log.warning(
                            "Waited %.3g s for rows or updates of embedding nodes. These nodes do "
                            "not answer: %s",
                            seconds,
                            "; ".join(silent),
                        )

    def _wait(self) -> int:
        """Returns the number of this rank's wait, from 1 on; 0 if it does not wait."""
        standing = self._engine.standing()
        return int(standing.waits_begun if standing.waits_begun > standing.waits_ended else 0)

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
