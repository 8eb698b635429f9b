"""One write to disk for all that came while the last one was under way."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


@dataclasses.dataclass
class Ticket(Generic[Item]):
    """An item that waits to be committed, and what became of it.

    Args:
        item: What was submitted.
        result: Of its commit.
        error: Why it was not committed.
        settled: Whether either is known.
    """

    item: Item
    result: Any = None
    error: BaseException | None = None
    settled: bool = False

    def succeed(self, result: Any) -> None:
        """Settles it: it is committed."""
        self.result, self.settled = result, True

    def fail(self, error: BaseException) -> None:
        """Settles it: it is not committed."""
        self.error, self.settled = error, True


class GroupCommit(Generic[Item]):
    """Lets the thread that holds a lock commit what all threads have submitted. Thread-safe.

    A commit that waits for a disk is then shared: with n threads up to n items take one wait.

    Args:
        lock: Under which items are committed.
        commit: Commits tickets, and settles each.

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
        self._queue = threading.Lock()  # of `_waiting`; never held meanwhile

    def submit(self, item: Item) -> Any:
        """Has an item committed, and returns the result.

        Raises:
            BaseException: Why it was not committed.
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
