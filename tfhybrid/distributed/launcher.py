"""What `horovodrun` tells this process through the environment, before Horovod starts."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os

import horovod.tensorflow as hvd

_ANSWER_SECONDS = 3.0


@dataclasses.dataclass(frozen=True)
class Place:
    """This process's place in the job.

    Args:
        rank: Its number among all.
        size: The number of ranks.
        local_rank: Its number on its host.
        local_size: The number of ranks on its host; their numbers are consecutive.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int


def place() -> Place:
    """Returns this process's place from Horovod or the launcher; without either, one rank."""
    if hvd.is_initialized():
        return Place(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    defaults = {"RANK": "0", "SIZE": "1", "LOCAL_RANK": "0", "LOCAL_SIZE": "1"}
    told = [os.environ.get(f"HOROVOD_{name}", default) for name, default in defaults.items()]
    return Place(*map(int, told))


class Server:
    """The launcher's key-value server for the rendezvous of Gloo.

    Anyone who can reach it can read and write its values. They are lost when the launcher ends.

    Args:
        address: The server's address.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def __str__(self) -> str:
        return f"{self._address[0]} port {self._address[1]}"

    def get(self, name: str) -> str | None:
        """Returns the value of a key, or `None` if there is none.

        Raises:
            OSError: The server does not respond; `ConnectionRefusedError`: it has ended.
        """
        status, text = self._ask("GET", name)
        return text if status == http.HTTPStatus.OK else None

    def put(self, name: str, value: str) -> None:
        """Stores a value. Raises as `get` does."""
        self._ask("PUT", name, value)

    def remove(self, name: str) -> None:
        """Deletes a value. Raises as `get` does."""
        self._ask("DELETE", name)

    def _ask(self, method: str, name: str, value: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(*self._address, timeout=_ANSWER_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request(method, f"/tfhybrid/{name}", body=value)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except http.client.HTTPException as error:
                raise OSError(f"{type(error).__name__}: {error}") from error


def launcher_server() -> Server | None:
    """Returns the launcher's server before Horovod starts, or `None`.

    There is none without `horovodrun`, or once Horovod runs. An elastic job does not use it,
    because its ranks have no numbers before it runs.
    """
    told = os.environ
    port = told.get("HOROVOD_GLOO_RENDEZVOUS_PORT", "")
    if hvd.is_initialized() or "HOROVOD_RANK" not in told or "HOROVOD_ELASTIC" in told:
        return None
    host = told.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    return Server((host, int(port))) if host and port.isdigit() else None
