from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tfhybrid.errors import StoreError
from tfhybrid.job import lifelines
from tfhybrid.job.lifelines import LEFT, Lifelines

TOKEN = "0123456789abcdef"
SECONDS = 10
RANK_0, RANK_3 = "rank 0 (pid 4 on h1)", "rank 3 (pid 17 on h2)"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with door.listen("127.0.0.1") as made:
        yield made


def connect(listener: socket.socket, ranks: list[int]) -> tuple[dict, dict]:
    """The connections of rank 0, and those of the others, by rank."""
    theirs = {}

    def dial() -> None:
        for rank in ranks:
            theirs[rank] = lifelines.dial(listener.getsockname(), TOKEN, rank, SECONDS)

    dialling = threading.Thread(target=dial)
    dialling.start()
    ours = lifelines.accept(listener, TOKEN, ranks, SECONDS)
    dialling.join()
    return ours, theirs


@pytest.fixture
def ends(listener) -> Iterator[tuple[Lifelines, Lifelines]]:
    """The lifelines of rank 0, and those of rank 3."""
    ours, theirs = connect(listener, [3])
    made = Lifelines({ours[3]: RANK_3}, SECONDS), Lifelines({theirs[3]: RANK_0}, SECONDS)
    yield made
    for end in made:
        end.close()


def test_news_travel_both_ways(ends):
    rank_0, rank_3 = ends
    assert rank_0.news(0) == []
    rank_0.tell("rank 1 (pid 5 on häuschen) has died")
    assert rank_3.news(SECONDS) == ["rank 1 (pid 5 on häuschen) has died"]
    rank_3.tell(LEFT)
    assert rank_0.news(SECONDS) == [LEFT]


def test_rank_0_is_connected_with_all_others(listener):
    ours, theirs = connect(listener, [2, 1])
    for rank in (1, 2):
        theirs[rank].sendall(str(rank).encode())
        assert ours[rank].recv(8) == str(rank).encode()
        ours[rank].close()
        theirs[rank].close()


def test_who_goes_without_a_word_has_died(ends):
    rank_0, rank_3 = ends
    rank_3.close()
    assert rank_0.news(SECONDS) == [f"{RANK_3} has died"]
    rank_0.tell("to nobody")


def test_what_was_told_before_the_end_is_heard(ends):
    rank_0, rank_3 = ends
    rank_3.tell(LEFT)
    rank_3.close()
    assert rank_0.news(SECONDS) == [LEFT]
    assert rank_0.news(0) == []


def test_a_connection_that_is_reset_is_a_death(listener):
    ours, theirs = connect(listener, [3])
    rank_0 = Lifelines({ours[3]: RANK_3}, SECONDS)
    theirs[3].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs[3].close()
    assert rank_0.news(SECONDS) == [f"{RANK_3} has died"]
    rank_0.close()


def test_news_may_come_in_pieces(listener):
    ours, theirs = connect(listener, [3])
    rank_0 = Lifelines({ours[3]: RANK_3}, SECONDS)
    theirs[3].sendall(b"le")
    assert rank_0.news(0.1) == []
    theirs[3].sendall(b"ft\n")
    assert rank_0.news(SECONDS) == [LEFT]
    rank_0.close()
    theirs[3].close()


def test_notes_come_beside_news(ends):
    rank_0, rank_3 = ends
    rank_3.tell('{"note": 1}')
    rank_3.tell('{"note": 2}')
    rank_3.tell(LEFT)
    assert rank_0.news(SECONDS) == [LEFT]
    assert rank_0.notes() == [(RANK_3, '{"note": 1}'), (RANK_3, '{"note": 2}')]
    assert rank_0.notes() == []


def test_what_is_told_behind_a_long_note_is_heard_although_the_rank_has_closed(ends):
    """More than the kernel takes at once: telling never waits, closing does for a moment."""
    rank_0, rank_3 = ends
    note = "{" + "x" * 20_000_000
    rank_3.tell(note)
    rank_3.tell(LEFT)
    closing = threading.Thread(target=rank_3.close)
    closing.start()
    while not (news := rank_0.news(SECONDS)):
        pass
    closing.join()
    assert news == [LEFT]
    assert rank_0.notes() == [(RANK_3, note)]


@pytest.mark.parametrize("hello", [b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 24, b"%s0000000x"])
def test_strangers_are_turned_away(listener, hello):
    with socket.create_connection(listener.getsockname()) as stranger:
        stranger.sendall(hello.replace(b"%s", TOKEN.encode()))
        stranger.shutdown(socket.SHUT_WR)
        ours, theirs = connect(listener, [1])
        stranger.settimeout(SECONDS)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert [*ours] == [1]
    ours[1].close()
    theirs[1].close()


def test_strangers_who_say_nothing_keep_nobody_waiting(listener, monkeypatch):
    monkeypatch.setattr(lifelines, "_CONNECT_SECONDS", 3)  # less than each might be given
    monkeypatch.setattr(lifelines, "_MOST_STRANGERS", 6)
    with contextlib.ExitStack() as stack:
        for number in range(9):  # some of them drip
            stranger = stack.enter_context(socket.create_connection(listener.getsockname()))
            stranger.sendall(TOKEN[:number].encode())
        ours, theirs = connect(listener, [1, 2])
    assert sorted(ours) == [1, 2]
    for link in (*ours.values(), *theirs.values()):
        link.close()


def test_a_rank_that_comes_twice_is_one(listener):
    with socket.create_connection(listener.getsockname()) as second:
        second.sendall(f"{TOKEN}00000001".encode())
        ours, theirs = connect(listener, [1, 2])
    assert sorted(ours) == [1, 2]
    for link in (*ours.values(), *theirs.values()):
        link.close()


def test_ranks_that_do_not_come_are_named(listener, monkeypatch):
    monkeypatch.setattr(lifelines, "_CONNECT_SECONDS", 0.1)
    with pytest.raises(StoreError, match=r"No connection from rank\(s\) 1, 2 within"):
        lifelines.accept(listener, TOKEN, [2, 1], SECONDS)


def test_a_port_that_is_closed_is_named(listener):
    address = listener.getsockname()
    listener.close()
    with pytest.raises(StoreError, match=rf"rank 0 at 127\.0\.0\.1 port {address[1]}.*firewall"):
        lifelines.dial(address, TOKEN, 1, SECONDS)
