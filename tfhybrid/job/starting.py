"""The start of a job: how ranks find rank 0, and who watches until the job runs.

A rank that dies before Horovod has brought all together leaves the others in a rendezvous that
names nobody. So they connect before that, by the server that `horovodrun` runs for Horovod, and a
thread watches from then on. Where there is no such server, they connect through Horovod.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import secrets
import socket
import threading
import time
from types import TracebackType
from typing import NamedTuple

from tfhybrid import distributed
from tfhybrid.config import silence_seconds
from tfhybrid.core import native
from tfhybrid.errors import StoreError
from tfhybrid.job import lifelines
from tfhybrid.job.lifelines import CONNECT_SECONDS, LEFT, Gathering, Lifelines, not_come

_log = logging.getLogger("tfhybrid.watch")

POLL_SECONDS = 0.025
GRACE_SECONDS = 2.0
LINGER_SECONDS = 0.5  # horovodrun sends SIGKILL after 5
_PATH = "/tfhybrid/rank-0"  # of the server: any path of two parts holds a value


class _Told(NamedTuple):
    """Where rank 0 listens, and what it wants to be shown; on rank 0 what it listens with."""

    address: tuple[str, int]
    token: str
    listener: socket.socket | None = None


class Starting:
    """This process's lifelines while the job starts; every rank makes one before Horovod starts.

    Its thread says at once who has died, and ends this process. `take` ends it, and hands the
    lifelines on; without it they are closed.

    Example:

    ```python
    with Starting() as start:
        hvd.init()
        lines = start.take()
    ```
    """

    def __init__(self) -> None:
        self._rank = int(os.environ.get("HOROVOD_RANK", "0"))
        self._ranks = int(os.environ.get("HOROVOD_SIZE", "1"))
        self._lines = Lifelines({}, silence_seconds())
        self._links: dict[int, socket.socket] = {}
        self._connected = threading.Event()
        self._ending = threading.Event()
        self._failure: StoreError | None = None
        self._thread: threading.Thread | None = None
        self._taken = False
        if distributed.is_started() or _server() is None or self._ranks == 1:
            return  # Horovod will bring them together
        native.linger_after_sigterm(LINGER_SECONDS)
        self._start(None)

    def __enter__(self) -> Starting:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()
        if not self._taken:
            self._lines.close()
            native.linger_after_sigterm(0)

    @property
    def connected(self) -> bool:
        """Whether it has all its lifelines."""
        return self._connected.is_set()

    def take(self) -> tuple[Lifelines, dict[int, socket.socket]]:
        """Returns the lifelines and their links by rank; every rank must call it, with Horovod up.

        Raises:
            StoreError: On all ranks: one of them cannot be reached.
        """
        if self._thread is None:
            self._rank, self._ranks = distributed.rank(), distributed.size()
            self._start(_told_by_horovod())
        distributed.together(self._wait)
        self._stop()
        self._taken = True
        return self._lines, self._links

    def _start(self, told: _Told | None) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(told,), name="tfhybrid-start", daemon=True
        )
        self._thread.start()

    def _stop(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _wait(self) -> None:
        if not self._connected.wait(CONNECT_SECONDS):
            raise not_come(set(range(1, self._ranks)) - set(self._links))
        if self._failure is not None:
            raise self._failure

    def _run(self, told: _Told | None) -> None:
        try:
            if self._rank == 0:
                self._gather(told or _told_to_server())
            else:
                told = told or self._told_by_server()
                self._add(
                    0, lifelines.dial(told.address, told.token, self._rank, silence_seconds())
                )
        except (OSError, StoreError) as error:
            self._failure = error if isinstance(error, StoreError) else StoreError(str(error))
        self._connected.set()
        while not self._ending.is_set():
            self._look(POLL_SECONDS)

    def _gather(self, told: _Told) -> None:
        assert told.listener is not None
        others = range(1, self._ranks)
        gathering = Gathering(told.listener, told.token, others, silence_seconds())
        try:
            while gathering.missing and not self._ending.is_set():
                for rank, link in gathering.arrivals(POLL_SECONDS).items():
                    self._add(rank, link)
                self._look(0)
        finally:
            gathering.close()

    def _add(self, rank: int, link: socket.socket) -> None:
        self._links[rank] = link
        self._lines.add(link, f"rank {rank}")

    def _look(self, seconds: float) -> None:
        deaths = dict.fromkeys(news for news in self._lines.news(seconds) if news != LEFT)
        if deaths:
            news = ". ".join(deaths)
            self._lines.tell(news)
            here = f"rank {self._rank} (pid {os.getpid()} on {socket.gethostname()})"
            _log.error("While the job started, %s. So %s ends too.", news, here)
            native.exit_after(GRACE_SECONDS)
            self._ending.set()

    def _told_by_server(self) -> _Told:
        while not self._ending.is_set():
            if text := _ask_server("GET"):
                host, port, token = json.loads(text)
                return _Told((host, port), token)
            time.sleep(POLL_SECONDS)
        raise StoreError("Rank 0 has not told where it listens")


def _server() -> tuple[str, int] | None:
    address = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    port = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT", "")
    return (address, int(port)) if address and port.isdigit() else None


def _ask_server(method: str, content: str | None = None) -> str | None:
    """Returns what the server holds at `_PATH`, or `None` where it holds nothing."""
    server = _server()
    assert server is not None
    connection = http.client.HTTPConnection(*server, timeout=CONNECT_SECONDS)
    try:
        connection.request(method, _PATH, body=content)
        answer = connection.getresponse()
        text = answer.read().decode()
        return text if answer.status == http.HTTPStatus.OK else None
    finally:
        connection.close()


def _listening() -> _Told:
    listener = lifelines.listen(distributed.address())
    return _Told(listener.getsockname()[:2], secrets.token_hex(16), listener)


def _told_to_server() -> _Told:
    told = _listening()
    _ask_server("PUT", json.dumps([*told.address, told.token]))
    return told


def _told_by_horovod() -> _Told:
    told = distributed.together(lambda: _listening() if distributed.rank() == 0 else None)
    address, token = distributed.broadcast_object(told and (told.address, told.token))
    return _Told(address, token, told and told.listener)
