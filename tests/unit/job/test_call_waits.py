"""What a rank reports of its collective call, and what rank 0 writes of it, without processes."""

from __future__ import annotations

import json

import pytest

from tfhybrid import distributed
from tfhybrid.core.meetings import Meeting
from tfhybrid.job.call_waits import OwnCall
from tfhybrid.job.waits import Board, Wait

RANKS = [f"rank {rank} (pid {rank + 100} on h)" for rank in range(3)]
LEADERS = dict.fromkeys(RANKS, RANKS[0])
BUILD = Meeting("build", "update_0", ("a", "b"))


def note(
    name: str,
    *,
    waits: bool,
    seconds: float = 8.0,
    number: int = 1,
    tables: list[str] | None = None,
) -> str:
    call = {"name": name, "number": number, "waits": waits}
    return json.dumps({"call": call, "seconds": seconds, "tables": tables or []})


def warnings(*notes: tuple[int, str]) -> list[str]:
    board = Board(RANKS, LEADERS)
    for rank, line in notes:
        assert board.hear(RANKS[rank], line) is None
    return board.warnings


def test_a_call_is_reported_after_a_second_and_after_eight_and_when_it_is_over():
    own = OwnCall(["a"])
    with distributed.call("checkpoint.save"):
        notes = [line for _ in range(100) for line in own.look(0.1)]
    assert [json.loads(line)["seconds"] for line in notes] == [1, 8]
    assert json.loads(notes[0])["call"] == {"name": "checkpoint.save", "number": 1, "waits": False}
    assert json.loads(notes[0])["tables"] == ["a"]
    assert own.look(0.1) == ['{"call": null}']
    assert own.look(60) == []


@distributed.call("inner")
def fails_within() -> None:
    raise ValueError(distributed.call_state().title())


def test_the_innermost_call_counts_and_an_error_leaves_it():
    with distributed.call("outer"):
        with pytest.raises(ValueError, match="call 1 of inner"):
            fails_within()
        assert distributed.call_state().name == "outer"
    assert distributed.call_state() is None


def test_a_rank_that_works_in_the_call_is_not_missing():
    works = note("checkpoint.save", waits=False, seconds=1)
    waits = note("checkpoint.save", waits=True)
    assert warnings((0, works), (2, works), (1, waits)) == []
    (line,) = warnings((0, works), (1, waits))
    assert line == (
        f"Waited 8 s in call 1 of checkpoint.save: {RANKS[0]}, {RANKS[1]}. Not there: "
        f"{RANKS[2]} (Not in a step, or stopped). Every rank must make this call"
    )


def test_a_wait_is_written_once_with_what_the_others_do():
    waits = note("checkpoint.save", waits=True)
    step = json.dumps(
        {"wait": vars(Wait(3, BUILD.signature, 1, 0)), "seconds": 1, "meeting": BUILD.to_json()}
    )
    other = note("metrics.evaluate", waits=False, seconds=1)
    (line,) = warnings((1, step), (2, other), (0, waits), (0, waits))
    assert f"{RANKS[1]} (Waiting in build 1 of optimizer update_0" in line
    assert f"{RANKS[2]} (Working in call 1 of metrics.evaluate)" in line


def test_tables_are_compared_once_the_leader_waits_too():
    opening = note("the opening of table 'c'", waits=True, seconds=1, number=0, tables=["a", "c"])
    leader = note("checkpoint.save", waits=True, seconds=1, tables=["a", "b"])
    assert warnings((1, opening)) == []
    assert warnings((1, opening), (0, note("x", waits=False, seconds=1))) == []
    (line,) = warnings((1, opening), (0, leader), (0, leader))
    assert f"{RANKS[0]} builds 'a', 'b'; {RANKS[1]} builds 'a', 'c'" in line


def test_the_tables_of_a_rank_stay_known_when_its_wait_in_a_step_ends():
    opening = note("the opening of table 'c'", waits=True, seconds=1, number=0, tables=["a", "c"])
    leader = note("checkpoint.save", waits=True, seconds=1, tables=["a", "b"])
    (line,) = warnings((1, opening), (1, json.dumps({"wait": None})), (0, leader))
    assert f"{RANKS[1]} builds 'a', 'c'" in line


def test_a_leader_that_creates_a_table_slowly_is_not_missing():
    opening = note("the opening of table 'c'", waits=True, number=0)
    assert warnings((0, opening)) == []
    (line,) = warnings((0, opening), (1, opening))
    assert f"Not there: {RANKS[0]} (Waiting in the opening of table 'c')" in line
