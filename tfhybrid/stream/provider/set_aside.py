"""Leases that were set aside, because several trainers have died under them."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfhybrid.errors import ConfigError, CorruptFileError
from tfhybrid.stream.provider.deaths import DeathFile, Deaths, read_entries, write_entries
from tfhybrid.stream.provider.lease_book import LeaseBook
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights import checked_json
from tfhybrid.stream.weights.applied_ranges import AppliedRanges
from tfhybrid.stream.weights.lease import Range

_log = logging.getLogger("tfhybrid.stream")


@dataclasses.dataclass(frozen=True)
class SetAsideLease:
    """A lease whose rows are given to no trainer until an operator says so.

    Args:
        model: Name of the target model.
        queue: Name of the queue.
        begin: Position of the first row.
        end: Position behind the last row.
        rows: Number of good rows.
        trainers: Names of the trainers that died, the last one last.
    """

    model: str
    queue: str
    begin: QueuePosition
    end: QueuePosition
    rows: int
    trainers: Sequence[str]

    @property
    def range(self) -> Range:
        """Range of the lease: position of its first row, and position behind its last row."""
        return self.begin, self.end

    @property
    def name(self) -> str:
        """Name for people and metrics: model, queue and range, `ads/video[3:0,4:0)`."""
        begin, end = (f"{at.offset}:{at.row}" for at in self.range)
        return f"{self.model}/{self.queue}[{begin},{end})"


class SetAside:
    """The leases of a provider that were set aside, in a file. Thread-safe.

    If the file cannot be written, the leases are kept in memory and the error is logged. If it is
    damaged, it is renamed and the provider begins without it: its leases are given out again, and
    set aside again if trainers die again.

    Args:
        path: Path of the file; it need not exist.
        deaths: File of the rows that are not set aside yet, under which trainers have died.
        max_deaths: Number of trainers that may die under the same rows: with this one, the rows
            are set aside. Default: `None`, they never are.

    Raises:
        ConfigError: `max_deaths` is not positive.
        OSError: The file cannot be read.

    Attributes:
        deaths: The argument.
    """

    def __init__(
        self, path: str | os.PathLike[str], deaths: DeathFile, max_deaths: int | None = None
    ) -> None:
        if max_deaths is not None and max_deaths < 1:
            raise ConfigError(f"max_deaths must be at least 1. Received: {max_deaths}")
        self._path = Path(path)
        self.deaths = deaths
        self._max_deaths = max_deaths
        self._lock = threading.Lock()
        self._leases = self._read()

    @property
    def leases(self) -> list[SetAsideLease]:
        """Leases that are set aside now, in the order in which they were."""
        with self._lock:
            return list(self._leases)

    def takes(self, trainers: Sequence[str]) -> bool:
        """Returns whether rows must be set aside.

        Args:
            trainers: Names of the trainers that have died under them; one may be there twice.
        """
        return self._max_deaths is not None and len(trainers) >= self._max_deaths

    def mark(self, queue: str, model: str, done: AppliedRanges) -> list[Deaths]:
        """Adds to the applied rows those that a new provider must not lease with others.

        They are the rows that are set aside, and those under which trainers have died. What the
        weights have in part is forgotten.

        Args:
            queue: Name of the queue.
            model: Name of the target model.
            done: Rows that the weights have.

        Returns:
            Rows under which trainers have died: to be leased as they were.
        """
        for each in self.leases:
            if (each.queue, each.model) == (queue, model):
                if done.overlaps(each.range):
                    self.remove([each])
                else:
                    done.add(each.range)
        kept = []
        for deaths in self.deaths.of(queue, model):
            if not done.overlaps(deaths.range):
                done.add(deaths.range)
                kept.append(deaths)
        return kept

    def keep_deaths(self, queue: str, books: Mapping[str, LeaseBook]) -> None:
        """Writes the rows of a queue under which trainers have died.

        Args:
            queue: Name of the queue.
            books: Leases of the queue, by model.
        """
        deaths = [
            Deaths(model, queue, *span, trainers)
            for model, book in books.items()
            for span, trainers in book.deaths
        ]
        self.deaths.replace(queue, deaths)

    def add(self, lease: SetAsideLease) -> None:
        """Sets a lease aside, and logs it.

        Args:
            lease: Lease to set aside.
        """
        _log.error(
            "Lease %s IS SET ASIDE with its %d rows: %d trainers have died under it, %s. Look at "
            "their logs, then give it out again by `tfhybrid stream retry`",
            *(lease.name, lease.rows, len(lease.trainers), ", ".join(lease.trainers)),
        )
        with self._lock:
            self._leases.append(lease)
            self._write()

    def remove(self, leases: Sequence[SetAsideLease]) -> None:
        """Removes leases, so that they are not set aside any more.

        Args:
            leases: Leases to remove.
        """
        with self._lock:
            if leases:
                self._leases = [each for each in self._leases if each not in leases]
                self._write()

    def _read(self) -> list[SetAsideLease]:
        try:
            return read(self._path)
        except CorruptFileError as error:
            moved = checked_json.moved_aside(self._path)
            _log.error("The leases set aside are given out again: %s. It is now %s", error, moved)
            return []

    def _write(self) -> None:
        write_entries(self._path, self._leases, "the leases set aside")


def read(path: Path) -> list[SetAsideLease]:
    """Returns the leases in the file of a provider; none if there is no file.

    Args:
        path: Path of the file.

    Raises:
        CorruptFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    try:
        return read_entries(path, SetAsideLease, "leases")
    except FileNotFoundError:
        return []
