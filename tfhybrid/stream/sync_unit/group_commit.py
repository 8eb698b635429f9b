"""Group commit: one write to disk for all items that arrived during the previous write."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


@dataclasses.dataclass
class Ticket(Generic[Item]):
    """A submitted item, and the outcome of its commit.

    Args:
        item: Item that was submitted.
        result: Result of the commit, once it has succeeded.
        error: Error of the commit, once it has failed.
        settled: Whether the commit has succeeded or failed.
    """

    item: Item
    result: Any = None
    error: BaseException | None = None
    settled: bool = False

    def succeed(self, result: Any) -> None:
        """Marks the item of this ticket as committed. Called by the function `commit`.

        Args:
            result: Result that `GroupCommit.submit` returns.
        """
        self.result, self.settled = result, True

    def fail(self, error: BaseException) -> None:
        """Marks the item of this ticket as not committed. Called by the function `commit`.

        Args:
            error: Error that `GroupCommit.submit` raises.
        """
        self.error, self.settled = error, True


class GroupCommit(Generic[Item]):
    """A queue whose items are committed together, by the thread that holds a lock. Thread-safe.

    The threads share the wait for the disk: n threads commit up to n items in one wait.

    Args:
        lock: Lock that is held while items are committed.
        commit: Function that commits the items of some tickets, in order, and settles each ticket.

    Example:

    >>> def commit(tickets):
    ...     for ticket in tickets:
    ...         ticket.succeed(ticket.item + 1)
    >>> GroupCommit(threading.Lock(), commit).submit(1)
    2
    """

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        commit: Callable[[Sequence[Ticket[Item]]], object],
    ) -> None:
        self._lock = lock
        self._commit = commit
        self._waiting: list[Ticket[Item]] = []
        self._queue = threading.Lock()  # guards `_waiting`; never held during a commit

    def submit(self, item: Item) -> Any:
        """Commits an item, possibly together with those of other threads. Blocks until then.

        Args:
            item: Item to commit. The commit may run on another thread.

        Returns:
            The result with which `commit` settled the item's ticket.

        Raises:
            BaseException: The error with which the ticket was settled, or that `commit` raised.
        """
        ticket = Ticket(item)
        with self._queue:
            self._waiting.append(ticket)
        with self._lock:
            if not ticket.settled:
                with self._queue:
                    tickets, self._waiting = self._waiting, []
                self._settle(tickets)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    def _settle(self, tickets: Sequence[Ticket[Item]]) -> None:
        try:
            self._commit(tickets)
        except BaseException as error:
            for each in tickets:
                if not each.settled:
                    each.fail(error)
            if not isinstance(error, Exception):
                raise
