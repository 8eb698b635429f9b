"""Connections of the ranks with rank 0, made in small steps so that failures are noticed meanwhile.

Rank 0 publishes its address and a token, the *invitation*. Before Horovod starts, it stores the
invitation on the launcher's server; afterwards Horovod broadcasts it.
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
from tfhybrid.job.rank_identity import RankIdentity
from tfhybrid.rpc.listener import Listener, dial, probed

CONNECT_SECONDS = 30
_ATTEMPT_SECONDS = 3.0
_LONGEST_PAUSE_SECONDS = 0.5
_INVITATION = "rank-0"


@dataclasses.dataclass(frozen=True)
class Invitation:
    """Data that a rank needs to connect with rank 0.

    Args:
        address: Host and port on which rank 0 listens.
        token: Token that rank 0 expects.
        host: Rank 0, as it introduces itself.
    """

    address: tuple[str, int]
    token: str
    host: RankIdentity

    def to_json(self) -> str:
        """Returns the invitation as one line of JSON."""
        return json.dumps([*self.address, self.token, self.host.to_json()])

    @classmethod
    def from_json(cls, text: str) -> Invitation:
        """Parses the output of `to_json`.

        Args:
            text: Line of JSON from rank 0.

        Returns:
            The invitation.

        Raises:
            ValueError, TypeError: The text is not an invitation.
        """
        host, port, token, member = json.loads(text)
        return cls((str(host), int(port)), str(token), RankIdentity.from_json(member))


class Connecting(Protocol):
    """One rank's side of connecting with the others. One thread calls all methods."""

    def step(self, seconds: float) -> Mapping[socket.socket, RankIdentity]:
        """Works on the connections for about `seconds` and returns those that are new.

        The caller closes the sockets.

        Returns:
            The sockets, and the rank at the other end of each.

        Raises:
            StoreError: This rank cannot connect, so the job cannot start.
            LauncherGoneError: The launcher has ended, and the job with it.
        """

    def missing(self) -> list[str]:
        """Returns descriptions of the ranks that are not connected yet; empty if all are."""

    def close(self) -> None:
        """Stops connecting. Connections that `step` has returned stay open for their receiver."""


class LauncherGoneError(Exception):
    """Error of a job whose launcher (such as `horovodrun`) has ended."""


class Gathering:
    """Rank 0's side of connecting: accepts all other ranks and rejects strangers.

    A stranger delays no rank.

    Args:
        listener: Listening socket; closed by `close`.
        own: Rank 0.
        ranks: Number of ranks of the job.
        silence: Seconds without any sign of a host after which its connections break.
        server: Launcher's server, which holds the invitation until all are connected. Default:
            `None`, Horovod broadcasts it.

    Attributes:
        invitation: Invitation for the other ranks.
    """

    def __init__(
        self,
        listener: socket.socket,
        own: RankIdentity,
        ranks: int,
        silence: float,
        server: Server | None = None,
    ) -> None:
        address = listener.getsockname()[:2]
        self.invitation = Invitation(address, secrets.token_hex(16), own)
        self._listener = Listener(listener, self.invitation.token)
        self._members = {own.rank: own}
        self._absent = set(range(ranks)) - {own.rank}
        self._silence = silence
        self._server = server
        self._stored = False  # whether the server has the invitation

    def step(self, seconds: float) -> dict[socket.socket, RankIdentity]:
        """Accepts ranks for up to `seconds` and returns the connections that are new.

        Args:
            seconds: Maximum time to wait for ranks. The launcher's server may take 3 s more.

        Returns:
            The sockets, and the rank at the other end of each. The caller closes the sockets.

        Raises:
            LauncherGoneError: The launcher has ended.
        """
        if self._server is not None and not self._stored:
            self._store_invitation(self._server)
        links = {}
        for handshake, link, _ in self._listener.arrivals(seconds):
            try:
                member = RankIdentity.from_json(handshake)
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
        """Returns descriptions of the ranks that are not connected, with host names if known."""
        return [self._describe(rank) for rank in sorted(self._absent)]

    def close(self) -> None:
        """Stops accepting ranks, and deletes rank 0's address and token from the launcher's server.

        Logs and raises nothing if the server is gone.
        """
        self._listener.close()
        if self._server is not None and self._stored:
            with contextlib.suppress(OSError):  # the server ends with the launcher
                self._server.remove(_INVITATION)

    def _store_invitation(self, server: Server) -> None:
        try:
            server.put(_INVITATION, self.invitation.to_json())
        except ConnectionRefusedError as error:
            raise LauncherGoneError from error
        except OSError:
            return  # the server is busy; the next step tries again
        self._stored = True

    def _describe(self, rank: int) -> str:
        for member in self._members.values():
            first, last = member.neighbours
            if first <= rank <= last:
                return f"rank {rank} on {member.host}"
        return f"rank {rank}"


class Calling:
    """Another rank's side of connecting: connects with rank 0 once there is an invitation.

    Args:
        own: This rank.
        silence: Seconds without any sign of rank 0's host after which the connection breaks.
        source: Invitation, or the launcher's server that will hold it.
    """

    def __init__(self, own: RankIdentity, silence: float, source: Invitation | Server) -> None:
        self._own = own
        self._silence = silence
        self._source = source
        self._connected = False
        self._host: RankIdentity | None = source.host if isinstance(source, Invitation) else None
        self._pause = 0.05
        self._next = 0.0
        self._deadline: float | None = None  # set by the first attempt

    def step(self, seconds: float) -> dict[socket.socket, RankIdentity]:
        """Gets the invitation and tries to connect; returns the connection once it is made.

        Args:
            seconds: Time to wait if no attempt is due. An attempt takes up to 6 s.

        Returns:
            The socket and the identity of rank 0, or nothing yet. The caller closes the socket.

        Raises:
            StoreError: Rank 0 could not be reached for 30 s.
            LauncherGoneError: The launcher has ended.
        """
        if time.monotonic() < self._next:
            time.sleep(seconds)
            return {}
        # The pauses grow, because many ranks ask one server.
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        self._next = time.monotonic() + self._pause
        invitation = self._invitation()
        link = self._dial(invitation) if invitation is not None else None
        return {link: invitation.host} if link is not None and invitation is not None else {}

    def missing(self) -> list[str]:
        """Returns a description of rank 0; empty once this rank is connected with rank 0."""
        if self._connected:
            return []
        first = self._own.host if self._own.neighbours[0] == 0 else "the first host"
        return [str(self._host or f"rank 0 on {first}")]

    def close(self) -> None:
        """Does nothing, because this side holds no resources."""

    def _invitation(self) -> Invitation | None:
        if isinstance(self._source, Invitation):
            return self._source
        try:
            text = self._source.get(_INVITATION)
        except ConnectionRefusedError as error:
            raise LauncherGoneError from error
        except OSError:
            return None  # the server is busy
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
                return None  # if rank 0 has died, the launcher ends the job
            raise StoreError(
                f"Cannot connect to rank 0 at {invitation.address[0]} port "
                f"{invitation.address[1]} ({error}). Check that no firewall closes the ports "
                "between the hosts"
            ) from error
        self._connected = True
        return link


def not_come(ranks: Iterable[str]) -> StoreError:
    """Returns the error about ranks that have not connected in time.

    Args:
        ranks: Descriptions of the ranks.
    """
    return StoreError(
        f"No connection with {', '.join(ranks)} within {CONNECT_SECONDS} s. Check that no firewall "
        "closes the ports between the hosts"
    )
