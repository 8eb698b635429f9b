"""Connects ranks with rank 0, in small steps, so that they can watch for failures meanwhile.

Rank 0 tells the others its address and a token: its *invitation*. Before Horovod starts, it stores
the invitation on the launcher's server; afterwards Horovod sends it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from tfhybrid.distributed import Server
from tfhybrid.errors import StoreError
from tfhybrid.job.member import Member
from tfhybrid.nodes.door import Door, dial, probed

CONNECT_SECONDS = 30
_ATTEMPT_SECONDS = 3.0
_LONGEST_PAUSE_SECONDS = 0.5
_INVITATION = "rank-0"


@dataclasses.dataclass(frozen=True)
class Invitation:
    """What a rank needs to connect with rank 0.

    Args:
        address: The address at which rank 0 listens.
        token: The token that rank 0 expects.
        host: Rank 0 itself.
    """

    address: tuple[str, int]
    token: str
    host: Member

    def to_json(self) -> str:
        """Returns it as one line."""
        return json.dumps([*self.address, self.token, self.host.to_json()])

    @classmethod
    def from_json(cls, text: str) -> Invitation:
        """Parses the output of `to_json`.

        Raises:
            ValueError: Something else has.
        """
        host, port, token, member = json.loads(text)
        return cls((str(host), int(port)), str(token), Member.from_json(member))


class Connecting(Protocol):
    """The connecting side of a rank."""

    def step(self, seconds: float) -> Mapping[socket.socket, Member]:
        """Continues for about this long; returns new connections and their peers.

        Raises:
            StoreError: Connecting failed, for all ranks.
            LauncherGoneError: The job has ended.
        """

    def missing(self) -> list[str]:
        """Returns the ranks that are not connected yet."""

    def close(self) -> None:
        """Stops connecting."""


class LauncherGoneError(Exception):
    """The launcher's server, and thus the launcher, has ended."""


class Gathering:
    """Rank 0's side: accepts all other ranks. Strangers are rejected without delaying the ranks.

    Args:
        listener: Closed by `close`.
        own: Rank 0.
        ranks: The number of ranks.
        silence: Seconds without an answer after which a connection breaks.
        server: Where to store the invitation until all are connected; `None` if Horovod sends it.
    """

    def __init__(
        self,
        listener: socket.socket,
        own: Member,
        ranks: int,
        silence: float,
        server: Server | None = None,
    ) -> None:
        address = listener.getsockname()[:2]
        self.invitation = Invitation(address, secrets.token_hex(16), own)
        self._door = Door(listener, self.invitation.token)
        self._members = {own.rank: own}
        self._absent = set(range(ranks)) - {own.rank}
        self._silence = silence
        self._server = server
        self._left = False  # the invitation, with the server

    def step(self, seconds: float) -> dict[socket.socket, Member]:
        """Accepts ranks that connect within this time."""
        if self._server is not None and not self._left:
            self._leave_invitation(self._server)
        links = {}
        for greeting, link in self._door.arrivals(seconds):
            try:
                member = Member.from_json(greeting)
            except ValueError:
                link.close()
                continue
            if member.rank in self._absent:
                links[probed(link, self._silence)] = member
                self._members[member.rank] = member
                self._absent.remove(member.rank)
            else:
                link.close()
        return links

    def missing(self) -> list[str]:
        """Returns the missing ranks, with their host if another rank of it is connected."""
        return [self._describe(rank) for rank in sorted(self._absent)]

    def close(self) -> None:
        """Stops accepting, and deletes the invitation."""
        self._door.close()
        if self._server is not None and self._left:
            with contextlib.suppress(OSError):  # it ended with the launcher
                self._server.remove(_INVITATION)

    def _leave_invitation(self, server: Server) -> None:
        try:
            server.put(_INVITATION, self.invitation.to_json())
        except ConnectionRefusedError as error:
            raise LauncherGoneError from error
        except OSError:
            return  # busy; try again in the next step
        self._left = True

    def _describe(self, rank: int) -> str:
        for member in self._members.values():
            first, last = member.neighbours
            if first <= rank <= last:
                return f"rank {rank} on {member.host}"
        return f"rank {rank}"


class Calling:
    """A rank that connects with rank 0, as soon as it is invited.

    Args:
        own: This rank.
        silence: After how many seconds without an answer the connection breaks.
        source: The invitation, or the server where it will be.
    """

    def __init__(self, own: Member, silence: float, source: Invitation | Server) -> None:
        self._own = own
        self._silence = silence
        self._source = source
        self._connected = False
        self._host: Member | None = source.host if isinstance(source, Invitation) else None
        self._pause = 0.05
        self._next = 0.0
        self._deadline: float | None = None  # since the first attempt

    def step(self, seconds: float) -> dict[socket.socket, Member]:
        """Asks for the invitation, and connects."""
        if time.monotonic() < self._next:
            time.sleep(seconds)
            return {}
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)  # many ranks ask one server
        self._next = time.monotonic() + self._pause
        invitation = self._invitation()
        link = self._dial(invitation) if invitation is not None else None
        return {link: invitation.host} if link is not None and invitation is not None else {}

    def missing(self) -> list[str]:
        """Returns rank 0, until it is connected."""
        if self._connected:
            return []
        first = self._own.host if self._own.neighbours[0] == 0 else "the first host"
        return [str(self._host or f"rank 0 on {first}")]

    def close(self) -> None:
        """Does nothing: nobody waits for this end."""

    def _invitation(self) -> Invitation | None:
        if isinstance(self._source, Invitation):
            return self._source
        try:
            text = self._source.get(_INVITATION)
        except ConnectionRefusedError as error:
            raise LauncherGoneError from error
        except OSError:
            return None  # busy
        with contextlib.suppress(ValueError, TypeError):
            return Invitation.from_json(text or "")
        return None

    def _dial(self, invitation: Invitation) -> socket.socket | None:
        self._host = invitation.host
        now = time.monotonic()
        self._deadline = self._deadline or now + CONNECT_SECONDS
        try:
            link = dial(
                invitation.address,
                invitation.token,
                self._own.to_json(),
                _ATTEMPT_SECONDS,
                self._silence,
            )
        except OSError as error:
            if now < self._deadline:
                return None  # perhaps it has died, which the launcher tells
            raise StoreError(
                f"Cannot connect to rank 0 at {invitation.address[0]} port "
                f"{invitation.address[1]} ({error}). Does a firewall close the ports between the "
                "hosts?"
            ) from error
        self._connected = True
        return link


def not_come(ranks: Iterable[str]) -> StoreError:
    """Returns the error of ranks that have not connected."""
    return StoreError(
        f"No connection with {', '.join(ranks)} within {CONNECT_SECONDS} s. Does a firewall close "
        "the ports between the hosts?"
    )
