"""The launcher `horovodrun`: the numbers and the server that it gives this process.

They are in environment variables, and known before Horovod starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client

import horovod.tensorflow as hvd

from tfhybrid import settings

_ANSWER_SECONDS = 3.0


@dataclasses.dataclass(frozen=True)
class RankNumbers:
    """Numbers of this process in the job.

    Args:
        rank: Number among all ranks, from 0.
        size: Number of ranks.
        local_rank: Number among the ranks of its host; 0 is the leader.
        local_size: Number of ranks on its host; they are consecutive.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int


def rank_numbers() -> RankNumbers:
    """Returns this process's numbers, from Horovod if it runs, else from the launcher.

    Without a launcher, the process is the only rank.
    """
    if hvd.is_initialized():
        return RankNumbers(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    return RankNumbers(*settings.launcher_ranks())


class Server:
    """Client of the launcher's key-value server, which Gloo uses for its rendezvous.

    Anyone who can reach the server can read and write its values. They are lost when the launcher
    ends. Thread-safe: each call uses a connection of its own.

    Args:
        address: Host and port of the server.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def __str__(self) -> str:
        return f"{self._address[0]} port {self._address[1]}"

    def get(self, name: str) -> str | None:
        """Returns the value of a key, or `None` if there is none.

        Raises:
            OSError: The server does not respond within 3 s; a `ConnectionRefusedError` if it has
                ended.
        """
        status, text = self._call("GET", name)
        return text if status == http.HTTPStatus.OK else None

    def put(self, name: str, value: str) -> None:
        """Stores a value under a key, in place of an earlier one.

        Args:
            name: Key; a word that is valid in a URL.
            value: Text to store.

        Raises:
            OSError: The server does not respond within 3 s; a `ConnectionRefusedError` if it has
                ended.
        """
        self._call("PUT", name, value)

    def remove(self, name: str) -> None:
        """Deletes a key and its value, if it exists.

        Args:
            name: Key.

        Raises:
            OSError: The server does not respond within 3 s; a `ConnectionRefusedError` if it has
                ended.
        """
        self._call("DELETE", name)

    def _call(self, method: str, name: str, value: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(*self._address, timeout=_ANSWER_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request(method, f"/tfhybrid/{name}", body=value)
                response = connection.getresponse()
                return response.status, response.read().decode()
            except http.client.HTTPException as error:
                raise OSError(f"{type(error).__name__}: {error}") from error


def launcher_server() -> Server | None:
    """Returns the launcher's server, or `None` without `horovodrun` and once Horovod runs.

    Also `None` in an elastic job, whose ranks have no numbers before Horovod runs.
    """
    address = None if hvd.is_initialized() else settings.launcher_address()
    return None if address is None else Server(address)
