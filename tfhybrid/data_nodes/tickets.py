"""Tickets: the numbers of a trainer's batches, and the order in which owners can free them."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Callable

from tfhybrid.core.split_batches import TICKETS


@dataclasses.dataclass
class _Held:
    """A batch that owners hold for this trainer."""

    ticket: int
    size: int  # bytes of its keys, on their owners
    seen: bool = False  # it was looked up


class Holding:
    """The batches of one data set that owners hold, in the order in which they were handed out.

    Not thread-safe: a `TicketBook` calls the methods under its lock. `size` is read without it, by
    the thread that hands out the batches.

    Args:
        lag: Number of batches that owners still hold, counted back from the last one that was
            looked up, which counts. Batches before them can be freed; all after them are held.
    """

    def __init__(self, lag: int) -> None:
        self.lag = lag
        self._held: collections.deque[_Held] = collections.deque()

    @property
    def size(self) -> int:
        """Sum of the sizes of all batches, in bytes."""
        return sum(each.size for each in self._held)

    def add(self, held: _Held) -> None:
        """Adds a batch that is handed out.

        Args:
            held: Ticket and size of the batch.
        """
        self._held.append(held)

    def done(self) -> list[int]:
        """Removes and returns the tickets of batches that are not looked up any more."""
        last = max((index for index, each in enumerate(self._held) if each.seen), default=-1)
        return [self._held.popleft().ticket for _ in range(last - self.lag + 1)]

    def all(self) -> list[int]:
        """Removes and returns all tickets."""
        tickets = [each.ticket for each in self._held]
        self._held.clear()
        return tickets


class TicketBook:
    """Issues tickets for a trainer's batches; knows which batches owners can free. Thread-safe.

    A batch is finished once a later batch of its data set was looked up, because that lookup waits
    for the update of the finished batch.

    Args:
        looked_up: Function that returns the tickets that were looked up since its last call.
        rank: Rank of this trainer.
        size: Number of trainers. No two of them issue the same ticket.
    """

    def __init__(self, looked_up: Callable[[], list[int]], rank: int, size: int) -> None:
        self._looked_up = looked_up
        self._rank = rank
        self._size = size
        self._lock = threading.Lock()
        self._given = 0  # number of tickets that were issued
        self._seen = 0  # number of tickets that were looked up
        self._unseen: dict[int, _Held] = {}
        # Tickets of data sets that have ended, each list with the value of `_seen` from which on
        # they can be freed.
        self._ended: list[tuple[int, list[int]]] = []

    def give(self) -> int:
        """Returns a ticket below `TICKETS`, which no other batch in use has, on any trainer."""
        with self._lock:
            ticket = (self._given * self._size + self._rank) % (TICKETS - TICKETS % self._size)
            self._given += 1
            return ticket

    def hand_out(self, holding: Holding, ticket: int, size: int) -> None:
        """Records that owners hold a batch.

        Args:
            holding: Batches of the same data set.
            ticket: Ticket of the batch.
            size: Bytes that it takes, as `Holding.size` counts them.
        """
        with self._lock:
            held = _Held(ticket, size)
            self._unseen[ticket] = held
            holding.add(held)

    def dropped(self, holding: Holding) -> list[int]:
        """Returns the tickets that owners can free now, each once.

        These are tickets of the data set of `holding`, and of data sets that have ended.
        """
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
        """Ends an epoch of a data set.

        Its last batches may still be in use, so `dropped` returns them later.

        Args:
            holding: Batches of the data set; it is empty afterwards.
        """
        with self._lock:
            left = holding.all()
            unseen = sum(ticket in self._unseen for ticket in left)
            if left:
                self._ended.append((self._seen + unseen + holding.lag, left))

    def _see(self) -> None:
        """Marks the batches that were looked up. Requires `_lock`."""
        for ticket in self._looked_up():
            held = self._unseen.pop(ticket, None)
            if held is not None:
                held.seen = True
                self._seen += 1
