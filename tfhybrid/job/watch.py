"""The watch: a thread in every process that says at once who has died, and ends its own process.

It also says which ranks wait for which others (`tfhybrid/job/waits.py`).

A rank that waits in Horovod for a dead one gets an error that names nobody, and one that is busy
elsewhere gets none. So every rank looks at the liveness locks of its host's ranks and at the
lifelines of all. The first news are passed on, and end the watch.

`horovodrun` ends survivors with SIGTERM, perhaps before they have looked: they linger, and look.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence

from tfhybrid import distributed
from tfhybrid.config import silence_seconds
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.job import lifelines
from tfhybrid.job.lifelines import LEFT, Lifelines
from tfhybrid.job.waits import Board, OwnWait
from tfhybrid.nodes import door

_log = logging.getLogger("tfhybrid.watch")

POLL_SECONDS = 0.025
GRACE_SECONDS = 2.0
LINGER_SECONDS = 0.5  # horovodrun sends SIGKILL after 5


def start(engine: Engine) -> Watch | None:
    """Starts to watch the other ranks, if there are any; every rank must call it.

    Args:
        engine: Of this rank.

    Raises:
        StoreError: A lifeline cannot be made; on all ranks.
    """
    if distributed.size() == 1:
        return None
    name = distributed.process()
    names = distributed.allgather_object(name)
    neighbours = [r for r in range(distributed.local_size()) if r != distributed.local_rank()]
    lines = {link: names[rank] for rank, link in _connect_to_rank_0().items()}
    board = Board(names) if distributed.rank() == 0 else None
    return Watch(engine, name, neighbours, Lifelines(lines, silence_seconds()), board)


class Watch:
    """Watches the other ranks of the job until one is gone, or this one leaves.

    After a death this process is given 2 s to end by itself; an error of a collective does that.
    A rank that leaves in order ends the watch without a word: Horovod ends with it on all ranks,
    nobody waits for another any more, and `horovodrun` may kill the rest.

    Args:
        engine: Of this rank, whose store tells of its neighbours.
        name: This rank, for messages.
        neighbours: The local ranks of this host's other ranks.
        lifelines: Closed by `leave` and `abandon`.
        board: Where all ranks are; on rank 0 alone.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        neighbours: Sequence[int],
        lifelines: Lifelines,
        board: Board | None = None,
    ) -> None:
        self._engine = engine
        self._name = name
        self._neighbours = neighbours
        self._lifelines = lifelines
        self._board = board
        self._own_wait = OwnWait(engine)
        self._news: str | None = None
        self._stopping = threading.Event()
        native.linger_after_sigterm(LINGER_SECONDS)
        self._start()

    def leave(self) -> None:
        """Leaves the job in order, before the store is closed.

        Looks around once more: a rank whose collective has failed because another one died may
        come here before the watch has seen it.
        """
        self._stop()
        if self._news is None:
            self._look(0)
        if self._news is None:
            self._lifelines.tell(LEFT)
        self._lifelines.close()
        native.linger_after_sigterm(0)

    def abandon(self) -> None:
        """Leaves the watch to the parent, in a forked child: it would keep the lifelines open."""
        self._lifelines.close()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Looks away meanwhile."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def _start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="tfhybrid-watch", daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while self._news is None and not self._stopping.is_set():
            terminated = native.is_lingering()
            self._look(POLL_SECONDS)
            if terminated:
                return  # ranks that get SIGTERM together have all looked before the first one ends

    def _look(self, seconds: float) -> None:
        news = self._seen(seconds)
        if not news:
            return
        # A death makes collectives fail, and ranks leave. Whoever is seen to have left has done so
        # after that death, so it shows now, and is the news.
        news += self._seen(0)
        deaths = dict.fromkeys(each for each in news if each != LEFT)  # each once
        self._news = ". ".join(deaths) or LEFT
        self._lifelines.tell(self._news)
        if self._news != LEFT:
            _log.error("%s. So %s ends too.", self._news, self._name)
            native.exit_after(GRACE_SECONDS)

    def _seen(self, seconds: float) -> list[str]:
        news = self._lifelines.news(seconds)
        return news + self._neighbours_news() + self._differences()

    def _neighbours_news(self) -> list[str]:
        states = [self._engine.rank_state(neighbour) for neighbour in self._neighbours]
        died = [f"{name} has died" for state, name in states if state == native.RankState.DIED]
        left = [LEFT for state, _ in states if state == native.RankState.LEFT]
        return died + left

    def _differences(self) -> list[str]:
        """Tells rank 0 whether this rank waits; there, returns which ranks do different things."""
        own = self._own_wait.look()
        if self._board is None:
            for note in own:
                self._lifelines.tell(note)
            return []
        notes = [*((self._name, note) for note in own), *self._lifelines.notes()]
        heard = [self._board.hear(rank, note) for rank, note in notes]
        return [difference for difference in heard if difference is not None]


def _connect_to_rank_0() -> dict[int, socket.socket]:
    """Returns this process's connections: those of rank 0 with all others, by rank."""
    rank, silence = distributed.rank(), silence_seconds()
    listener = distributed.together(
        lambda: door.listen(distributed.address()) if rank == 0 else None
    )
    address, token = distributed.broadcast_object(
        (listener.getsockname()[:2], secrets.token_hex(16)) if listener else None
    )
    if listener is None:
        return distributed.together(lambda: {0: lifelines.dial(address, token, rank, silence)})
    with listener:
        others = range(1, distributed.size())
        return distributed.together(lambda: lifelines.accept(listener, token, others, silence))
