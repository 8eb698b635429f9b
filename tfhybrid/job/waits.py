"""Detection of ranks that wait for others, and of ranks that wait for each other forever.

All ranks begin the same meetings in the same order (`core/engine/meetings.h`). A rank that has
waited in one for a second reports the meeting's number and signature to rank 0. If two ranks wait
in meetings of the same number with different signatures, they would wait for each other forever.
That is news and ends the job. A rank that only waits for another one is logged after ten seconds.
Collective calls between meetings are in `tfhybrid/job/call_waits.py`.

Nothing is sent while no rank waits for a second. Rank 0 answers a rank that waits for ten seconds,
which otherwise logs that rank 0 is silent: it may be stopped, and then nobody else names it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tfhybrid.core.engine import Engine
from tfhybrid.core.meetings import Meeting, listed
from tfhybrid.job.call_waits import CALL_LOGGED_SECONDS, CallBoard, OwnCall, StateClock

_log = logging.getLogger("tfhybrid.watch")

TOLD_SECONDS = 1.0
LOGGED_SECONDS = 10.0
ANSWER_SECONDS = 5.0
HEARD = json.dumps({"heard": True})  # answer of rank 0 to ranks that wait long
# A stopped process does not wait, so a longer gap between two checks counts as this much.
_LONGEST_GAP_SECONDS = 0.25


@dataclasses.dataclass(frozen=True)
class Wait:
    """Wait of one rank, in a meeting or for an update of tables.

    Args:
        number: Number of the meeting; during a wait for tables, number of the last meeting.
        signature: Signature of that meeting.
        ordinal: Number of the meeting in its series.
        for_tables: Number of waits for an update of tables so far; 0 in a meeting.
        awaited: Description of what the rank waits for outside of meetings. Default: none.
    """

    number: int
    signature: int
    ordinal: int
    for_tables: int
    awaited: str = ""

    @property
    def key(self) -> tuple[int, bool]:
        """Identity of the wait, equal on ranks that wait for the same: (meeting, is for tables)."""
        return self.number, self.for_tables > 0


class OwnWait:
    """Detector of this rank's waits, which writes the reports for rank 0. Not thread-safe.

    Args:
        engine: Engine of this rank.
        tables: Names of the tables that this rank has begun to open; grows later. Default: none.
    """

    def __init__(self, engine: Engine, tables: Sequence[str] = ()) -> None:
        self._engine = engine
        self._call = OwnCall(tables)
        self._clock: StateClock[Wait] = StateClock(TOLD_SECONDS, LOGGED_SECONDS)
        self._looked = time.monotonic()
        self._described: set[int] = set()
        self._unanswered: float | None = None  # seconds since rank 0 should have answered

    def look(self) -> list[str]:
        """Checks whether this rank waits; returns the notes to send to rank 0, lines of JSON.

        Call it often: a gap of more than 0.25 s between two calls counts as 0.25 s of waiting. It
        logs that rank 0 has not answered a note about a long wait.

        Raises:
            StoreError: The store is closed.
        """
        now = time.monotonic()
        gap, self._looked = min(now - self._looked, _LONGEST_GAP_SECONDS), now
        wait = self._wait()
        of_wait = [self._note(wait, seconds) for seconds in self._clock.due(wait, gap)]
        notes = self._call.look(gap) + of_wait
        self._await_answer(notes, gap)
        return notes

    def hear(self, note: str) -> None:
        """Takes a note of rank 0: a sentence, which it logs, or `HEARD`.

        Args:
            note: Line of JSON.
        """
        if note == HEARD:
            self._unanswered = None
        else:
            _log.warning("%s", json.loads(note)["log"])

    def _await_answer(self, notes: Sequence[str], gap: float) -> None:
        if notes:
            self._unanswered = 0.0 if any(map(is_long, notes)) else None
        elif self._unanswered is not None:
            self._unanswered += gap
            if self._unanswered >= ANSWER_SECONDS:
                self._unanswered = None
                _log.warning(
                    "This rank has told rank 0 of a long wait, and rank 0 has not answered for "
                    "%g s: it is stopped or very busy",
                    ANSWER_SECONDS,
                )

    def _wait(self) -> Wait | None:
        now = self._engine.standing()
        if now.begun > now.ended:
            return Wait(now.begun, now.signature, now.ordinal, 0)
        if now.waits_begun <= now.waits_ended:
            return None
        awaited = self._engine.awaited()
        return Wait(now.begun, now.signature, now.ordinal, now.waits_begun, awaited)

    def _note(self, wait: Wait | None, seconds: float) -> str:
        if wait is None or not seconds:
            return json.dumps({"wait": None})
        note = {"wait": dataclasses.asdict(wait), "seconds": seconds}
        note["tables"] = self._call.tables()
        if wait.signature not in self._described and wait.signature in self._engine.meetings:
            self._described.add(wait.signature)  # rank 0 keeps it, so one note is enough
            note["meeting"] = self._engine.meetings[wait.signature].to_json()
        return json.dumps(note)


class Board:
    """Waits of all ranks according to their reports; exists on rank 0 only. Not thread-safe.

    Args:
        ranks: Names of all ranks, in order.
        leaders: Name of the leader of each rank's host, by the rank's name. Default: none, so that
            the names of tables are not compared.

    Attributes:
        warnings: Sentences that all ranks should log; the caller removes them.
    """

    def __init__(self, ranks: Sequence[str], leaders: Mapping[str, str] | None = None) -> None:
        self.warnings: list[str] = []
        self._calls = CallBoard(ranks, leaders)
        self._ranks = list(ranks)
        self._waits: dict[str, Wait] = {}
        self._meetings: dict[int, Meeting] = {}
        self._logged: tuple[int, bool] | None = None

    def hear(self, rank: str, line: str) -> str | None:
        """Adds a rank's report, and logs waits of 10 s.

        Args:
            rank: Name of the rank.
            line: Note from `OwnWait.look` on that rank.

        Returns:
            The difference, as a sentence, if the rank and another one would wait for each other
            forever; otherwise `None`.
        """
        note = json.loads(line)
        if "tables" in note:  # not at the end of a wait or call
            self._calls.tables[rank] = note["tables"]
        if "call" in note:
            self._hear_call(rank, note)
            return None
        if note["wait"] is None:
            self._waits.pop(rank, None)
            return None
        wait = self._waits[rank] = Wait(**note["wait"])
        if "meeting" in note:
            self._meetings[wait.signature] = Meeting.from_json(note["meeting"])
        differing = self._differing(wait)
        if differing is None and note["seconds"] >= LOGGED_SECONDS and wait.key != self._logged:
            self._logged = wait.key
            self._log(wait)
        self.warnings += self._calls.differing(self._waiting)
        return differing

    def _hear_call(self, rank: str, note: dict[str, Any]) -> None:
        self._calls.hear(rank, note)
        self.warnings += self._calls.differing(self._waiting)
        if note.get("seconds", 0) >= CALL_LOGGED_SECONDS:
            sentence = self._calls.lonely(rank, self._whereabouts)
            self.warnings += [sentence] if sentence else []

    def _waiting(self, rank: str) -> str | None:
        """Returns where a rank waits for others, or `None` if it does not."""
        place = self._calls.place(rank)
        if place is not None and place.startswith("waiting"):
            return place
        wait = self._waits.get(rank)
        return None if wait is None or wait.for_tables else f"waiting in {self._title(wait)}"

    def _differing(self, wait: Wait) -> str | None:
        groups: dict[int, list[str]] = {}
        for rank in self._ranks:
            other = self._waits.get(rank)
            if other is not None and other.key == wait.key and not other.for_tables:
                groups.setdefault(other.signature, []).append(rank)
        if len(groups) < 2:
            return None
        (first, firsts), (second, seconds), *_ = groups.items()
        a, b = self._meetings[first], self._meetings[second]
        differences = [
            f"Only {ranks[0]}: {listed(missing)}"
            for ranks, missing in ((firsts, a.beyond(b)), (seconds, b.beyond(a)))
            if missing
        ]
        return ". ".join(
            [
                "Ranks differ in what they do next, and would wait for each other forever: "
                f"{self._who(firsts)}, {self._who(seconds)}",
                *differences,
            ]
        )

    def _who(self, ranks: Sequence[str]) -> str:
        return f"{listed(ranks)} {self._title(self._waits[ranks[0]])}"

    def _log(self, wait: Wait) -> None:
        waiting = [rank for rank in self._ranks if self._key_of(rank) == wait.key]
        elsewhere: dict[str, list[str]] = {}
        for rank in self._ranks:
            if rank not in waiting:
                elsewhere.setdefault(self._whereabouts(rank), []).append(rank)
        _log.warning(
            "Waited %g s %s: %s. %s",
            LOGGED_SECONDS,
            self._title(wait),
            listed(waiting),
            ". ".join(f"{whereabouts}: {listed(ranks)}" for whereabouts, ranks in elsewhere.items())
            or "All ranks have arrived",
        )

    def _key_of(self, rank: str) -> tuple[int, bool] | None:
        return self._waits[rank].key if rank in self._waits else None

    def _whereabouts(self, rank: str) -> str:
        if rank in self._waits:
            return f"Waiting {self._title(self._waits[rank])}"
        place = self._calls.place(rank)
        return f"{place[0].upper()}{place[1:]}" if place else "Not in a step, or stopped"

    def _title(self, wait: Wait) -> str:
        if wait.awaited:
            return f"for {wait.awaited}"
        meeting = self._meetings.get(wait.signature)
        title = meeting.title(wait.ordinal) if meeting else "the start"
        return f"for the update of the tables by {title}" if wait.for_tables else f"in {title}"


def is_long(note: str) -> bool:
    """Returns whether a rank waits so long, according to its note, that rank 0 answers.

    Args:
        note: Note from `OwnWait.look`.
    """
    return bool(json.loads(note).get("seconds", 0) >= CALL_LOGGED_SECONDS)
