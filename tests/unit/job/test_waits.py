"""What a rank tells of its waits, and what rank 0 makes of it, without processes and clocks."""

from __future__ import annotations

import dataclasses
import json
import logging
import types

import pytest

from tfhybrid.core.meetings import Meeting, MeetingProgress
from tfhybrid.job import waits
from tfhybrid.job.waits import Board, OwnWait

RANKS = [f"rank {rank} (pid {rank + 100} on h)" for rank in range(3)]
STEP = Meeting("step", "update_0", ("user", "item"), ("variable 2 (float32 [4])",), ("a/bias",))
OTHER = dataclasses.replace(STEP, tables=("user",))


class FakeEngine:
    def __init__(self, *meetings: Meeting) -> None:
        self.meetings = {meeting.signature: meeting for meeting in meetings or (STEP, OTHER)}
        self.now = MeetingProgress()
        self.awaits = ""

    def standing(self) -> MeetingProgress:
        return MeetingProgress.from_buffer_copy(self.now)

    def awaited(self) -> str:
        return self.awaits

    def begin(self, meeting: Meeting) -> None:
        self.now.begun += 1
        self.now.ordinal += 1
        self.now.signature = meeting.signature

    def end(self) -> None:
        self.now.ended = self.now.begun


class Rank:
    """A rank whose watch looks every 0.2 s."""

    def __init__(self, engine: FakeEngine, clock: list[float]) -> None:
        self.engine = engine
        self._clock = clock
        self._wait = OwnWait(engine)

    def told(self, seconds: float) -> list[str]:
        """What it tells rank 0 in so much time."""
        notes = []
        for _ in range(round(seconds / 0.2)):
            self._clock[0] += 0.2
            notes += self._wait.look()
        return notes

    def hears(self) -> None:
        self._wait.hear(waits.HEARD)

    def stands_still(self, seconds: float) -> list[str]:
        self._clock[0] += seconds
        return self._wait.look()


@pytest.fixture
def rank(monkeypatch) -> Rank:
    clock = [0.0]
    monkeypatch.setattr(waits, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    return Rank(FakeEngine(), clock)


def test_nothing_is_told_while_meetings_begin_and_end(rank):
    for _ in range(50):
        rank.engine.begin(STEP)
        assert rank.told(0.6) == []
        rank.engine.end()
        assert rank.told(0.6) == []
    assert rank.told(60) == []  # between two steps nobody waits


def test_a_wait_is_told_after_a_second_and_after_ten_and_when_it_is_over(rank):
    rank.engine.begin(STEP)
    (first,) = rank.told(3)
    assert Meeting.from_json(json.loads(first)["meeting"]) == STEP
    (second,) = rank.told(30)
    assert "meeting" not in json.loads(second)  # rank 0 knows it
    assert [json.loads(note)["seconds"] for note in (first, second)] == [1, 10]
    rank.engine.end()
    assert rank.told(3) == ['{"wait": null}']


def test_a_process_that_was_stopped_has_not_waited(rank):
    rank.engine.begin(STEP)
    assert rank.told(0.4) == []
    assert rank.stands_still(20) == []
    assert len(rank.told(2)) == 1


def test_a_wait_for_tables_is_told(rank):
    rank.engine.begin(STEP)
    rank.engine.end()
    rank.engine.now.waits_begun = 5
    (note,) = rank.told(3)
    assert json.loads(note)["wait"]["for_tables"] == 5


def test_a_wait_says_what_it_is_for(rank, caplog):
    rank.engine.now.waits_begun = 1
    rank.engine.awaits = "the leader of its host to let go of passes"
    board = Board(RANKS)
    for note in rank.told(12):
        board.hear(RANKS[1], note)
    assert caplog.messages == [
        f"Waited 10 s for the leader of its host to let go of passes: {RANKS[1]}. "
        f"Not in a step, or stopped: {RANKS[0]}, {RANKS[2]}"
    ]


def test_rank_0_is_named_once_if_it_does_not_answer_a_rank_that_waits_long(rank, caplog):
    rank.engine.begin(STEP)
    rank.told(14)
    assert caplog.messages == []
    rank.told(60)
    assert caplog.messages == [
        "This rank has told rank 0 of a long wait, and rank 0 has not answered for 5 s: it is "
        "stopped or very busy"
    ]


@pytest.mark.parametrize("outcome", ["answer", "end"])
def test_rank_0_is_not_named_if_it_answers_or_the_wait_ends(rank, outcome, caplog):
    rank.engine.begin(STEP)
    rank.told(12)
    if outcome == "answer":
        rank.hears()
    else:
        rank.engine.end()
    rank.told(60)
    assert caplog.messages == []


def notes_of(
    meeting: Meeting, *, number: int = 7, seconds: float = 1.0, for_tables: int = 0
) -> str:
    wait = waits.Wait(number, meeting.signature, 4, for_tables)
    return json.dumps(
        {"wait": dataclasses.asdict(wait), "seconds": seconds, "meeting": meeting.to_json()}
    )


def difference(mine: Meeting, theirs: Meeting) -> str | None:
    board = Board(RANKS)
    assert board.hear(RANKS[2], notes_of(theirs)) is None
    return board.hear(RANKS[0], notes_of(mine))


def test_ranks_that_differ_are_named():
    assert difference(STEP, STEP) is None
    assert difference(STEP, OTHER) == (
        "Ranks differ in what they do next, and would wait for each other forever: "
        f"{RANKS[0]} in step 4 of optimizer update_0 (tables 'user', 'item', 1 dense variable(s)), "
        f"{RANKS[2]} in step 4 of optimizer update_0 (tables 'user', 1 dense variable(s)). "
        f"Only {RANKS[0]}: table 'item'"
    )
    other = dataclasses.replace(STEP, of="update_1")
    assert "Only" not in difference(STEP, other)


def test_variables_that_keras_numbers_differently_are_the_same():
    assert difference(STEP, dataclasses.replace(STEP, paths=("a_1/bias",))) is None


def test_ranks_at_different_meetings_are_not_compared():
    board = Board(RANKS)
    assert board.hear(RANKS[0], notes_of(STEP)) is None
    assert board.hear(RANKS[1], notes_of(OTHER, number=8)) is None
    assert board.hear(RANKS[2], notes_of(OTHER, for_tables=1)) is None
    assert board.hear(RANKS[0], '{"wait": null}') is None
    assert board.hear(RANKS[1], notes_of(OTHER)) is None


def test_names_of_any_length_and_kind_give_one_line_that_is_not_long():
    odd = ["'", '"', "\n", "{", "häuschen", "\x00", "\\", "%s", "{}", "x" * 10_000]
    mine = dataclasses.replace(
        STEP,
        tables=tuple(f"{name}{number}" for number in range(50) for name in odd),
        variables=tuple(map(str, range(2000))),
        paths=("y" * 10_000,) * 2000,
    )
    sentence = difference(mine, STEP)
    assert "\n" not in sentence
    assert "\\n0" in sentence
    assert len(sentence) < 5000
    assert "492 more" in sentence
    note = notes_of(mine)
    assert "\n" not in note
    assert note.startswith("{")


def test_a_long_wait_is_logged_once_with_all_ranks(caplog):
    board = Board(RANKS)
    with caplog.at_level(logging.WARNING, "tfhybrid.watch"):
        board.hear(RANKS[2], notes_of(STEP))
        board.hear(RANKS[0], notes_of(STEP, number=6, for_tables=3))
        board.hear(RANKS[2], notes_of(STEP, seconds=10))
        board.hear(RANKS[2], notes_of(STEP, seconds=10))
    title = "step 4 of optimizer update_0 (tables 'user', 'item', 1 dense variable(s))"
    assert caplog.messages == [
        f"Waited 10 s in {title}: {RANKS[2]}. Waiting for the update of the tables by {title}: "
        f"{RANKS[0]}. Not in a step, or stopped: {RANKS[1]}"
    ]
    caplog.clear()
    board.hear(RANKS[2], notes_of(STEP, number=8, seconds=10))
    assert len(caplog.messages) == 1
