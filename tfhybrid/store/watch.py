"""The watch: a thread in every process that says at once who has died, and ends its own process.

A rank that waits in Horovod for a dead one gets an error that names nobody, and one that is busy
elsewhere gets none. So every rank looks at the liveness locks of its host's ranks and at the
lifelines of all. The first news are passed on, and end the watch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from tfhybrid.store import native
from tfhybrid.store.lifelines import LEFT, Lifelines

_log = logging.getLogger("tfhybrid.watch")

POLL_SECONDS = 0.025  # horovodrun kills the survivors of its host within 0.1 s
GRACE_SECONDS = 2.0


class Watch:
    """Watches the other ranks of the job until one is gone, or this one leaves.

    After a death this process is given 2 s to end by itself; an error of a collective does that.
    A rank that leaves in order ends the watch without a word: Horovod ends with it on all ranks,
    nobody waits for another any more, and `horovodrun` may kill the rest.

    Args:
        name: This rank, for messages.
        neighbours: The local ranks of this host's other ranks.
        lifelines: Closed by `leave` and `abandon`.
    """

    def __init__(self, name: str, neighbours: Sequence[int], lifelines: Lifelines) -> None:
        self._name = name
        self._neighbours = neighbours
        self._lifelines = lifelines
        self._news: str | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfhybrid-watch", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Leaves the job in order, before the store is closed.

        Looks around once more: a rank whose collective has failed because another one died may
        come here before the watch has seen it.
        """
        self._leaving.set()
        self._thread.join()
        if self._news is None:
            self._look(0)
        if self._news is None:
            self._lifelines.tell(LEFT)
        self._lifelines.close()

    def abandon(self) -> None:
        """Leaves the watch to the parent, in a forked child: it would keep the lifelines open."""
        self._lifelines.close()

    def _run(self) -> None:
        while self._news is None and not self._leaving.is_set():
            self._look(POLL_SECONDS)

    def _look(self, seconds: float) -> None:
        news = self._neighbours_news() or self._lifelines.news(seconds)
        if news is None:
            return
        self._news = news
        self._lifelines.tell(news)
        if news != LEFT:
            _log.error("%s. So %s ends too.", news, self._name)
            native.exit_after(GRACE_SECONDS)

    def _neighbours_news(self) -> str | None:
        states = [native.rank_state(neighbour) for neighbour in self._neighbours]
        died = [name for state, name in states if state == native.RankState.DIED]
        if died:
            return f"{died[0]} has died"
        return LEFT if any(state == native.RankState.LEFT for state, _ in states) else None
