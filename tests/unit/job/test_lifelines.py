from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tfhybrid.job.lifelines import LEFT, Lifelines

SECONDS = 10
RANK_0, RANK_3 = "rank 0 (pid 4 on h1)", "rank 3 (pid 17 on h2)"


@pytest.fixture
def links() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def ends(links) -> Iterator[tuple[Lifelines, Lifelines]]:
    """The lifelines of rank 0, and those of rank 3."""
    ours, theirs = links
    made = Lifelines({ours: RANK_3}, SECONDS), Lifelines({theirs: RANK_0}, SECONDS)
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


def test_who_connects_late_hears_the_news_but_no_notes(links):
    ours, theirs = links
    rank_0, rank_3 = Lifelines({}, SECONDS), Lifelines({theirs: RANK_0}, SECONDS)
    rank_0.tell("rank 1 (pid 5 on h1) has died")
    rank_0.tell('{"note": 1}')
    rank_0.add(ours, RANK_3)
    assert rank_3.news(SECONDS) == ["rank 1 (pid 5 on h1) has died"]
    assert rank_3.notes() == []
    rank_0.close()
    rank_3.close()


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


def test_a_connection_that_is_reset_is_a_death(links):
    ours, theirs = links
    rank_0 = Lifelines({ours: RANK_3}, SECONDS)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    assert rank_0.news(SECONDS) == [f"{RANK_3} has died"]
    rank_0.close()


def test_news_may_come_in_pieces(links):
    ours, theirs = links
    rank_0 = Lifelines({ours: RANK_3}, SECONDS)
    theirs.sendall(b"le")
    assert rank_0.news(0.1) == []
    theirs.sendall(b"ft\n")
    assert rank_0.news(SECONDS) == [LEFT]
    rank_0.close()


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
