"""Watch: a thread in every process that logs at once which rank died, and then ends the process.

It also reports which ranks wait for which others (`tfhybrid/job/waits.py`).

A rank that waits in Horovod for a dead rank gets an error that does not name the dead rank, and a
rank that is busy elsewhere gets no error. So every rank watches its lifelines and, once the store
is open, the liveness locks of its host's ranks. The first news is passed on and ends the watch.

If the launcher has a server for invitations, the watch starts before Horovod. Without it, a rank
that dies at that time would leave the others in a rendezvous that does not name the rank and, on
hosts other than the launcher's, waits forever.

`horovodrun` ends survivors with SIGTERM, perhaps before they have read the news. So they linger
for a moment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence

from tfhybrid import distributed
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.errors import StoreError
from tfhybrid.job.connecting import (
    CONNECT_SECONDS,
    Calling,
    Connecting,
    Gathering,
    LauncherGoneError,
    not_come,
)
from tfhybrid.job.lifelines import LEFT, Lifelines
from tfhybrid.job.rank_identity import RankIdentity
from tfhybrid.job.waits import HEARD, LOGGED_SECONDS, Board, OwnWait, is_long
from tfhybrid.rpc.listener import listen
from tfhybrid.settings import silence_seconds

_log = logging.getLogger("tfhybrid.watch")

POLL_SECONDS = 0.025
GRACE_SECONDS = 2.0
LINGER_SECONDS = 0.5  # shorter than 5 s, after which horovodrun sends SIGKILL
TOGETHER_SECONDS = 0.1  # shorter than survivors linger, so that they do not count as dead


def start() -> Watch | None:
    """Starts the thread that notices the death of other ranks. Every rank must call it.

    It must be called before Horovod starts.

    Returns:
        The watch. `None` in a job of one rank, and if ranks cannot connect without Horovod (under
        `mpirun`, or if Horovod already runs); `start_with_horovod` then starts it.

    Raises:
        OSError: Rank 0 cannot listen.
        ConfigError: `TFHYBRID_SILENCE_SECONDS` is out of range.
    """
    numbers, server = distributed.rank_numbers(), distributed.launcher_server()
    if numbers.size == 1 or server is None:
        return None
    own, silence = _own(numbers), silence_seconds()
    if numbers.rank > 0:
        return Watch(own, Lifelines({}, silence), Calling(own, silence, server))
    gathering = Gathering(listen(distributed.address()), own, numbers.size, silence, server)
    return Watch(own, Lifelines({}, silence), gathering)


def start_with_horovod(watch: Watch | None) -> Watch | None:
    """Starts the watch if `start` could not. Every rank must call it, with Horovod running.

    Args:
        watch: Result of `start`.

    Returns:
        The watch, or `None` in a job of one rank.

    Raises:
        StoreError: On other ranks: rank 0 cannot listen.
        OSError: On rank 0: it cannot listen.
        ConfigError: `TFHYBRID_SILENCE_SECONDS` is out of range.
    """
    if distributed.size() == 1 or all(distributed.allgather_object(watch is not None)):
        return watch
    if watch is not None:  # another rank had already started Horovod
        watch.leave()
    own, silence = _own(distributed.rank_numbers()), silence_seconds()
    gathering = distributed.together(
        lambda: (
            Gathering(listen(distributed.address()), own, distributed.size(), silence)
            if own.rank == 0
            else None
        )
    )
    invitation = distributed.broadcast_object(gathering and gathering.invitation)
    watch = Watch(own, Lifelines({}, silence), gathering or Calling(own, silence, invitation))
    watch.horovod_has_started()
    return watch


class Watch:
    """Watch of the other ranks, until one of them ends or this one leaves.

    It runs on a thread of its own. The other methods must be called by one thread.

    After a death this process has 2 s to end by itself, usually by the error of a collective; then
    the watch ends it. A rank that leaves normally ends the watch silently: Horovod ends with it on
    all ranks, no rank waits for another any more, and `horovodrun` may kill the rest. A rank that
    leaves before Horovod has started counts as dead, because the others would wait for it.

    Args:
        own: This rank.
        lifelines: Lifelines of this process; closed by `leave` and `abandon`.
        connecting: This rank's side of connecting; closed once all ranks are connected. Default:
            `None`, all lifelines are already there.
    """

    def __init__(
        self, own: RankIdentity, lifelines: Lifelines, connecting: Connecting | None = None
    ) -> None:
        self._own = own
        self._lifelines = lifelines
        self._connecting = connecting
        self._members: dict[int, RankIdentity] = {}  # ranks at the other ends of the lifelines
        self._failure: StoreError | None = None
        self._connected = threading.Event()
        self._starting = connecting is not None
        self._began = time.monotonic()
        self._logged = False  # whether late ranks were logged
        self._inside: _Inside | None = None
        self._tables: list[str] = []  # names of the tables that this rank has begun to open
        self._news: str | None = None
        self._stopping = threading.Event()
        native.linger_after_sigterm(LINGER_SECONDS)
        self._start()

    def horovod_has_started(self) -> None:
        """Tells the watch that Horovod runs on this rank.

        From now on a rank that leaves (`leave`) does not count as dead. A rank that ends without
        leaving always does.
        """
        self._starting = False

    def meet(self) -> None:
        """Waits until all ranks are connected. Every rank must call it, with Horovod running.

        Raises:
            StoreError: On all ranks: a lifeline could not be opened within 30 s, or its other end
                is not a rank of this job.
        """
        distributed.together(self._wait_until_connected)
        all_secrets = distributed.allgather_object(self._own.secret)
        distributed.together(lambda: self._compare(all_secrets))

    def attach(self, engine: Engine, neighbours: Sequence[int], board: Board | None) -> None:
        """Makes the watch also check the ranks of this host's store, and which ranks wait.

        Args:
            engine: Engine of this rank, with an open store.
            neighbours: Local ranks of the other ranks on this host.
            board: Board of all ranks' waits; `None` except on rank 0.
        """
        self._inside = _Inside(engine, neighbours, OwnWait(engine, self._tables), board)

    def note_table(self, name: str) -> None:
        """Notes that this rank begins to open a table, for the ranks that wait for it.

        Args:
            name: Name of the table.
        """
        self._tables.append(name)

    def leave(self, *, failed: bool = False) -> None:
        """Ends the watch and tells the others that this rank leaves. Call it before closing stores.

        It checks the other ranks once more: if a collective failed because another rank died, this
        rank can come here before the watch has seen the death.

        Args:
            failed: True if this rank leaves because of an exception. Then it waits up to 0.5 s for
                news, because the lifeline of a dead rank breaks after its Gloo connections.
        """
        if failed:
            self.wait_for_news(LINGER_SECONDS)
        self._stop()
        if self._news is None:
            self._judge(self._seen(0))
        if self._news is None:
            self._news = f"{self._own} has left" if self._starting else LEFT
            self._lifelines.tell(self._news)
        if self._connecting is not None:
            self._connecting.close()
        self._lifelines.close()
        native.linger_after_sigterm(0)

    def wait_for_news(self, seconds: float) -> bool:
        """Waits until another rank has died or left; returns whether one has.

        Args:
            seconds: Maximum time to wait.
        """
        self._thread.join(seconds)  # the watch ends with the first news
        return self._news is not None

    def abandon(self) -> None:
        """Closes this process's lifelines; call it in a forked child only.

        Otherwise the child would keep the lifelines open after the parent has died.
        """
        self._lifelines.close()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the watch's thread during the block, in which stores may close without alarm."""
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
        # After news this process ends soon. It connects late ranks until then, to tell them too.
        while not self._stopping.is_set() and (self._news is None or self._connecting is not None):
            terminated = native.is_lingering()
            self._look(POLL_SECONDS)
            if terminated:
                # If all ranks get SIGTERM together, each has checked before the first one ends.
                if self._starting and self._news is None:
                    self._judge([f"{self._own} was told to end (SIGTERM)"])
                return

    def _look(self, seconds: float) -> None:
        news = []
        if self._connecting is not None:
            news = self._connect(self._connecting, seconds)
            seconds = 0
        if self._news is None:
            self._judge(news + self._seen(seconds))

    def _connect(self, connecting: Connecting, seconds: float) -> list[str]:
        try:
            for link, member in connecting.step(seconds).items():
                self._members[member.rank] = member
                self._lifelines.add(link, str(member))
        except LauncherGoneError:
            return ["The launcher has ended"]
        except StoreError as error:
            self._failure = error
        missing = connecting.missing()
        if self._failure is not None or not missing:
            connecting.close()
            self._connecting = None
            self._connected.set()
        else:
            self._log_missing(missing)
        return []

    def _log_missing(self, missing: Sequence[str]) -> None:
        waited = time.monotonic() - self._began
        if self._own.rank == 0 and waited >= LOGGED_SECONDS and not self._logged:
            self._logged = True
            _log.warning(
                "Waited %g s for all ranks to start. Not there yet: %s",
                LOGGED_SECONDS,
                ", ".join(missing),
            )

    def _wait_until_connected(self) -> None:
        if not self._connected.wait(CONNECT_SECONDS):
            missing = self._connecting.missing() if self._connecting is not None else []
            raise not_come(missing)
        if self._failure is not None:
            raise self._failure

    def _compare(self, all_secrets: Sequence[str]) -> None:
        for rank, member in sorted(self._members.items()):
            if not hmac.compare_digest(member.secret, all_secrets[rank]):
                raise StoreError(
                    f"The process that connected as rank {rank} must be a rank of this job. "
                    f"Received: {member}, which Horovod does not know"
                )

    def _judge(self, news: list[str]) -> None:
        if not news:
            return
        # After a death, collectives fail and ranks leave. The death itself, and others at the same
        # time, can be seen a little later. The deaths are the news, so wait for them.
        deadline = time.monotonic() + TOGETHER_SECONDS
        while time.monotonic() < deadline:
            news = news + self._seen(POLL_SECONDS)
        sentences = ". ".join(each for each in news if each != LEFT).split(". ")
        deaths = [*dict.fromkeys(each for each in sentences if each)]
        if deaths and self._connecting is not None and (late := self._connecting.missing()):
            deaths.append(f"Not there yet: {', '.join(late)}")
        self._news = ". ".join(deaths) or LEFT
        self._lifelines.tell(self._news)
        if self._news != LEFT:
            when = "While the job started: " if self._starting else ""
            _log.error("%s%s. So %s ends too.%s", when, self._news, self._own, _own_wait())
            native.exit_after(GRACE_SECONDS)

    def _seen(self, seconds: float) -> list[str]:
        news = self._lifelines.news(seconds)
        if self._inside is not None:
            news += self._inside.news() + self._differences(self._inside)
        return news

    def _differences(self, inside: _Inside) -> list[str]:
        """Reports to rank 0 whether this rank waits; on rank 0, returns which ranks differ."""
        own = inside.own_wait.look()
        if inside.board is None:
            for note in own:
                self._lifelines.tell(note)
            for _, note in self._lifelines.notes():  # from rank 0
                inside.own_wait.hear(note)
            return []
        notes = [*((str(self._own), note) for note in own), *self._lifelines.notes()]
        heard = [inside.board.hear(rank, note) for rank, note in notes]
        if any(is_long(note) for _, note in notes):
            self._lifelines.tell(HEARD)
            inside.own_wait.hear(HEARD)
        for sentence in inside.board.warnings:
            _log.warning("%s", sentence)
            self._lifelines.tell(json.dumps({"log": sentence}))
        inside.board.warnings.clear()
        return [difference for difference in heard if difference is not None]


@dataclasses.dataclass(frozen=True)
class _Inside:
    """Checks that the watch makes once the store of this host is open."""

    engine: Engine
    neighbours: Sequence[int]
    own_wait: OwnWait
    board: Board | None

    def news(self) -> list[str]:
        """Returns which neighbours have died or left."""
        states = [self.engine.rank_state(neighbour) for neighbour in self.neighbours]
        died = [f"{name} has died" for state, name in states if state == native.RankState.DIED]
        left = [LEFT for state, _ in states if state == native.RankState.LEFT]
        return died + left


def _own_wait() -> str:
    """Returns a sentence with the collective call in which this rank waits, or an empty text."""
    state = distributed.broken_call() or distributed.call_state()
    return f" It was waiting in {state.title()}." if state is not None and state.waits else ""


def _own(numbers: distributed.RankNumbers) -> RankIdentity:
    first = numbers.rank - numbers.local_rank
    neighbours = (first, first + numbers.local_size - 1)
    return RankIdentity(
        numbers.rank, os.getpid(), socket.gethostname(), neighbours, secrets.token_hex(16)
    )
