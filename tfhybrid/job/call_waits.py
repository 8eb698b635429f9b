"""Detection of collective calls that a rank makes alone, and of tables that ranks build alone.

A rank that has been in a collective call for a second reports it to rank 0, and reports once more
when it has waited there for eight. Rank 0 then writes which call waits for which ranks; the watch
logs the sentence on all ranks. Nothing ends: the other ranks may still come.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tfhybrid import distributed
from tfhybrid.core.meetings import listed, shortened
from tfhybrid.distributed import CallState

_State = TypeVar("_State")

CALL_LOGGED_SECONDS = 8.0
_REPORTED_SECONDS = 1.0
_MAX_TABLES = 200


class StateClock(Generic[_State]):
    """Clock of the state that a rank is in, which tells when to report it. Not thread-safe.

    Args:
        *limits: Times after which a state is reported, in seconds, in order.
    """

    def __init__(self, *limits: float) -> None:
        self._limits = limits
        self._state: _State | None = None
        self._seconds = 0.0
        self._reported = 0.0  # last limit of this state that was returned

    def due(self, state: _State | None, gap: float) -> list[float]:
        """Returns the limits that the state has reached since the last call.

        Args:
            state: State of the rank now; `None` if there is nothing to report.
            gap: Seconds since the last call.

        Returns:
            Limits in order; or only 0 if the state is another one, and the one before was reported.
        """
        if state != self._state:
            ended = [0.0] if self._reported else []
            self._state, self._seconds, self._reported = state, 0.0, 0.0
            return ended
        if state is None:
            return []
        self._seconds += gap
        reached = [each for each in self._limits if self._reported < each <= self._seconds]
        self._reported = max([self._reported, *reached])
        return reached


class OwnCall:
    """Reporter of this rank's collective call, which writes the notes for rank 0. Not thread-safe.

    Args:
        tables: Names of the tables that this rank has begun to open, in order; grows later.
    """

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables = tables
        self._clock: StateClock[CallState] = StateClock(_REPORTED_SECONDS, CALL_LOGGED_SECONDS)

    def look(self, gap: float) -> list[str]:
        """Returns the notes to send to rank 0, lines of JSON.

        Args:
            gap: Seconds since the last call.
        """
        state = distributed.call_state()
        return [self._note(state, seconds) for seconds in self._clock.due(state, gap)]

    def _note(self, state: CallState | None, seconds: float) -> str:
        if state is None or not seconds:
            return json.dumps({"call": None})
        call = {"call": dataclasses.asdict(state), "seconds": seconds}
        return json.dumps(call | {"tables": self.tables()})

    def tables(self) -> list[str]:
        """Returns the names of this rank's first tables, shortened, for a note."""
        return list(shortened(self._tables[:_MAX_TABLES]))


class CallBoard:
    """Collective calls of all ranks according to their reports; rank 0 only. Not thread-safe.

    Args:
        ranks: Names of all ranks, in order.
        leaders: Name of the leader of each rank's host, by the rank's name. Default: none, so that
            tables are not compared.

    Attributes:
        tables: Names of the tables of each rank that has reported.
    """

    def __init__(self, ranks: Sequence[str], leaders: Mapping[str, str] | None = None) -> None:
        self.tables: dict[str, list[str]] = {}
        self._ranks = list(ranks)
        self._leaders = leaders or {}
        self._calls: dict[str, CallState] = {}
        self._warned: set[tuple[object, ...]] = set()

    def hear(self, rank: str, note: dict[str, Any]) -> None:
        """Adds a rank's report.

        Args:
            rank: Name of the rank.
            note: Parsed note of `OwnCall.look` on that rank.
        """
        if note["call"] is None:
            self._calls.pop(rank, None)
        else:
            self._calls[rank] = CallState(**note["call"])

    def place(self, rank: str) -> str | None:
        """Returns a rank's call, such as "waiting in call 1 of checkpoint.save", or `None` if none.

        Args:
            rank: Name of the rank.
        """
        state = self._calls.get(rank)
        if state is None:
            return None
        return f"{'waiting' if state.waits else 'working'} in {state.title()}"

    def lonely(self, rank: str, place: Callable[[str], str]) -> str | None:
        """Returns a sentence for the log if other ranks are not in the call in which a rank waits.

        The same sentence is returned once.

        Args:
            rank: Name of the rank, which has waited for 8 s.
            place: Function that returns where a rank is.
        """
        state = self._calls.get(rank)
        if state is None or not state.waits:
            return None
        if state.number:
            here = [each for each in self._ranks if self._key_of(each) == state.key]
            late = [each for each in self._ranks if each not in here]
        else:  # the leader creates a table without waiting
            leader = self._leaders.get(rank, rank)
            here, late = [rank], [leader] if leader != rank else []
        if not late or not self._is_new("lonely", state.key, *late):
            return None
        return (
            f"Waited {CALL_LOGGED_SECONDS:g} s in {state.title()}: {listed(here)}. Not there: "
            f"{listed(f'{each} ({place(each)})' for each in late)}. Every rank must make this call"
        )

    def differing(self, waiting: Callable[[str], str | None]) -> list[str]:
        """Returns a sentence for each rank that waits for a table while its leader waits elsewhere.

        Each sentence is returned once.

        Args:
            waiting: Function that returns where a rank waits, or `None` if it does not.
        """
        sentences = []
        for rank, state in self._calls.items():
            leader = self._leaders.get(rank, rank)
            if state.number or leader == rank or self._creates_table(leader):
                continue
            where = waiting(leader)
            if where is None or not self._is_new("tables", rank, state.name):
                continue
            lists = "; ".join(
                f"{each} builds {listed(map(repr, self.tables[each]))}"
                for each in (leader, rank)
                if each in self.tables
            )
            sentences.append(
                "All ranks must build the same tables, with the same names. Received: "
                f"{rank} waits for {state.title()}, and {leader} is {where}; {lists}"
            )
        return sentences

    def _creates_table(self, leader: str) -> bool:
        return leader in self._calls and not self._calls[leader].number

    def _key_of(self, rank: str) -> tuple[str, int] | None:
        return self._calls[rank].key if rank in self._calls else None

    def _is_new(self, *warning: object) -> bool:
        new = warning not in self._warned
        self._warned.add(warning)
        return new
