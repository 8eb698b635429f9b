"""Rank 0 that listens, and ranks and strangers that connect; with a real server of horovodrun."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from horovod.runner.http.http_server import RendezvousServer

from tfhybrid.distributed import Server
from tfhybrid.errors import StoreError
from tfhybrid.job import connecting
from tfhybrid.job.connecting import Calling, Gathering, Invitation, LauncherGoneError
from tfhybrid.job.rank_identity import RankIdentity
from tfhybrid.rpc import listener

SECONDS = 10


def member(rank: int) -> RankIdentity:
    """Ranks 0 and 1 are on h1, the others on h2."""
    host, neighbours = ("h1", (0, 1)) if rank < 2 else ("h2", (2, 3))
    return RankIdentity(rank, 100 + rank, host, neighbours, f"secret of {rank}")


@pytest.fixture
def gather() -> Iterator:
    with contextlib.ExitStack() as stack:

        def gather(ranks: int, server: Server | None = None) -> Gathering:
            made = Gathering(listener.listen("127.0.0.1"), member(0), ranks, SECONDS, server)
            stack.callback(made.close)
            return made

        yield gather


@pytest.fixture
def server() -> Iterator[Server]:
    started = RendezvousServer()
    yield Server(("127.0.0.1", started.start()))
    started.stop()


def meet(gathering: Gathering, callers: list[Calling]) -> dict[int, RankIdentity]:
    """Connects all; returns whom rank 0 has let in, and closes the connections."""
    found = {}
    deadline = time.monotonic() + SECONDS
    while gathering.missing() or any(caller.missing() for caller in callers):
        assert time.monotonic() < deadline
        links = gathering.step(0.01)
        found |= {each.rank: each for each in links.values()}
        for caller in callers:
            if caller.missing():
                links |= caller.step(0)
        for link in links:
            link.close()
    return found


def called(gathering: Gathering, *ranks: int) -> list[Calling]:
    return [Calling(member(rank), SECONDS, gathering.invitation) for rank in ranks]


def connect_as_stranger(gathering: Gathering) -> socket.socket:
    return socket.create_connection(gathering.invitation.address)


def test_ranks_find_rank_0_by_the_server_of_the_launcher(gather, server):
    gathering = gather(3, server)
    callers = [Calling(member(rank), SECONDS, server) for rank in (2, 1)]
    assert callers[0].step(0) == {}  # rank 0 has not come yet
    assert meet(gathering, callers) == {1: member(1), 2: member(2)}


def test_the_invitation_is_taken_back(gather, server):
    gathering = gather(2, server)
    gathering.step(0)
    assert Invitation.from_json(server.get("rank-0")) == gathering.invitation
    gathering.close()
    assert server.get("rank-0") is None


def test_what_another_program_left_with_the_server_is_no_invitation(server):
    server.put("rank-0", '{"address": 1}')
    assert Calling(member(1), SECONDS, server).step(0) == {}


def test_a_launcher_that_has_ended_is_noticed(gather):
    with socket.create_server(("127.0.0.1", 0)) as listener_socket:
        gone = Server(listener_socket.getsockname())
    with pytest.raises(LauncherGoneError):
        Calling(member(1), SECONDS, gone).step(0)
    with pytest.raises(LauncherGoneError):
        gather(2, gone).step(0)


def test_who_is_missing_is_named_with_what_is_known(gather, server):
    gathering = gather(5)
    assert gathering.missing() == ["rank 1 on h1", "rank 2", "rank 3", "rank 4"]
    (caller,) = called(gathering, 2)
    links = [*caller.step(0)]
    while "rank 2" in gathering.missing():
        links += gathering.step(0.01)
    assert gathering.missing() == ["rank 1 on h1", "rank 3 on h2", "rank 4"]
    for link in links:
        link.close()
    assert Calling(member(1), SECONDS, server).missing() == ["rank 0 on h1"]
    assert Calling(member(2), SECONDS, server).missing() == ["rank 0 on the first host"]
    assert Calling(member(2), SECONDS, gathering.invitation).missing() == [str(member(0))]


@pytest.mark.parametrize(
    "hello", [b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 2000, b"%s{}", b"%s" + b"\xff" * 1024]
)
def test_strangers_are_turned_away(gather, hello):
    gathering = gather(2)
    with connect_as_stranger(gathering) as stranger:
        stranger.sendall(hello.replace(b"%s", gathering.invitation.token.encode()))
        stranger.shutdown(socket.SHUT_WR)
        assert [*meet(gathering, called(gathering, 1))] == [1]
        gathering.close()
        stranger.settimeout(SECONDS)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""


def test_strangers_who_say_nothing_keep_nobody_waiting(gather, monkeypatch):
    monkeypatch.setattr(listener, "_MAX_STRANGERS", 6)
    gathering = gather(3)
    with contextlib.ExitStack() as stack:
        for number in range(9):  # some of them drip
            stranger = stack.enter_context(connect_as_stranger(gathering))
            stranger.sendall(gathering.invitation.token[:number].encode())
        assert sorted(meet(gathering, called(gathering, 1, 2))) == [1, 2]


def test_a_rank_that_comes_twice_is_one(gather):
    gathering = gather(3)
    assert sorted(meet(gathering, called(gathering, 1, 1, 2))) == [1, 2]


def test_a_port_that_is_closed_is_named(gather, monkeypatch):
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 0)
    gathering = gather(2)
    gathering.close()
    host, port = gathering.invitation.address
    with pytest.raises(StoreError, match=rf"rank 0 at {host} port {port}.*firewall"):
        called(gathering, 1)[0].step(0)


def test_a_member_comes_back_from_json():
    assert RankIdentity.from_json(member(3).to_json()) == member(3)
    with pytest.raises(ValueError, match="Received: '\\[\\]'"):
        RankIdentity.from_json("[]")
