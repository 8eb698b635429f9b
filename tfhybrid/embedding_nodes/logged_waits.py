"""Log of whom a process waits for, trainers and embedding nodes alike."""

from __future__ import annotations

import abc
import contextlib
import logging
import threading
import time

from tfhybrid.core.engine import Engine
from tfhybrid.errors import TfhybridError
from tfhybrid.rpc import messages

_log = logging.getLogger("tfhybrid.embedding_nodes")

_LOOK_SECONDS = 0.25


class LoggedWaits(abc.ABC):
    """Thread that logs for whom this process waits, after 10, 20, 40 and so on seconds of a wait.

    It ends when the engine's store is closed, or at `stop`.

    Args:
        engine: Engine of this process, with an open store.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopping = threading.Event()
        threading.Thread(target=self._run, name="tfhybrid-node-waits", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread soon. Any thread may call it."""
        self._stopping.set()

    def _run(self) -> None:
        with contextlib.suppress(TfhybridError):  # the store is closed
            wait: object = None
            seconds, logged_at = 0.0, messages.WAIT_SECONDS
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
                    awaited = self._awaited()
                    if awaited and self._wait() == wait:
                        _log.warning("Waited %.3g s for %s", seconds, awaited)

    @abc.abstractmethod
    def _wait(self) -> object:
        """Returns what identifies the wait of this process; false if it does not wait."""

    @abc.abstractmethod
    def _awaited(self) -> str:
        """Returns for whom this process waits, or "" if there is nothing to log."""


class TrainerWaits(LoggedWaits):
    """Thread of an embedding node that logs which trainers have not sent their part of an update.

    It says nothing while no trainer has begun an update.
    """

    def _wait(self) -> str:
        return self._engine.awaited()

    def _awaited(self) -> str:
        return self._engine.awaited()
