"""The tickets of the batches that a trainer has: given, looked up, and given back."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Callable

from tfhybrid.core.split_batches import TICKETS


@dataclasses.dataclass
class _Held:
    ticket: int
    size: int  # bytes of its keys, on their owners
    seen: bool = False


class Holding:
    """The batches of one data set that owners hold, in the order in which they were handed out.

    Args:
        lag: How many batches are held behind the last one that was looked up.
    """

    def __init__(self, lag: int) -> None:
        self.lag = lag
        self._held: collections.deque[_Held] = collections.deque()

    @property
    def size(self) -> int:
        """Bytes of all keys."""
        return sum(each.size for each in self._held)

    def add(self, held: _Held) -> None:
        """Notes a batch that is handed out."""
        self._held.append(held)

    def done(self) -> list[int]:
        """Forgets, and returns, the tickets of batches that nobody looks up any longer."""
        last = max((place for place, each in enumerate(self._held) if each.seen), default=-1)
        return [self._held.popleft().ticket for _ in range(last - self.lag + 1)]

    def all(self) -> list[int]:
        """Forgets, and returns, all tickets."""
        tickets = [each.ticket for each in self._held]
        self._held.clear()
        return tickets


class TicketBook:
    """The tickets of a trainer. Thread-safe.

    A batch is done once a later one of its data set was looked up: a lookup of a step waits until
    the step before has posted, and until that update is applied.

    Args:
        looked_up: Tells the tickets that were looked up since it was last called.
        rank: Of this trainer.
        size: Number of trainers, of which no two give the same ticket.
    """

    def __init__(self, looked_up: Callable[[], list[int]], rank: int, size: int) -> None:
        self._looked_up = looked_up
        self._rank = rank
        self._size = size
        self._lock = threading.Lock()
        self._given = 0
        self._seen = 0  # tickets
        self._unseen: dict[int, _Held] = {}
        # Of data sets that have ended: tickets, and how many others must have been seen first.
        self._ended: list[tuple[int, list[int]]] = []

    def give(self) -> int:
        """Returns a ticket that is not in use."""
        with self._lock:
            ticket = (self._given * self._size + self._rank) % (TICKETS - TICKETS % self._size)
            self._given += 1
            return ticket

    def hand_out(self, holding: Holding, ticket: int, size: int) -> None:
        """Notes that owners hold a batch.

        Args:
            holding: Of its data set.
            ticket: Of the batch.
            size: Bytes of its keys.
        """
        with self._lock:
            held = _Held(ticket, size)
            self._unseen[ticket] = held
            holding.add(held)

    def dropped(self, holding: Holding) -> list[int]:
        """Returns the tickets that owners can forget now: of a data set, and of ended ones."""
        with self._lock:
            self._see()
            tickets = holding.done()
            for seen, ended in self._ended:
                if seen <= self._seen:
                    tickets += ended
            self._ended = [each for each in self._ended if each[0] > self._seen]
            for ticket in tickets:
                self._unseen.pop(ticket, None)
            return tickets

    def end(self, holding: Holding) -> None:
        """Notes that a data set hands out nothing more; its last batches may be in use still.

        Args:
            holding: Of the data set.
        """
        with self._lock:
            left = holding.all()
            unseen = sum(ticket in self._unseen for ticket in left)
            if left:
                self._ended.append((self._seen + unseen + holding.lag, left))

    def _see(self) -> None:
        """Notes what was looked up; under the lock."""
        for ticket in self._looked_up():
            held = self._unseen.pop(ticket, None)
            if held is not None:
                held.seen = True
                self._seen += 1
