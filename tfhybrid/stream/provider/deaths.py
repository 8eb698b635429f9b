"""The trainers that have died under rows of a provider's queues."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import CorruptFileError
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights import checked_json
from tfhybrid.stream.weights.lease import Range

_log = logging.getLogger("tfhybrid.stream")

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Deaths:
    """Rows under which trainers have died.

    Args:
        model: Name of the target model.
        queue: Name of the queue.
        begin: Position of the first row.
        end: Position behind the last row.
        trainers: Names of the trainers, the last one last.
    """

    model: str
    queue: str
    begin: QueuePosition
    end: QueuePosition
    trainers: tuple[str, ...]

    @property
    def range(self) -> Range:
        """Position of the first row, and position behind the last row."""
        return self.begin, self.end


class DeathFile:
    """A provider's file of rows under which trainers have died. Thread-safe.

    Without the file, or if it is damaged or cannot be written, a new provider counts from 0 again,
    so more trainers die until it sets the rows aside. The log says so.

    Args:
        path: Path of the file; it need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._deaths = self._read()

    def of(self, queue: str, model: str) -> list[Deaths]:
        """Returns the rows of a queue under which trainers of a model have died, in order.

        Args:
            queue: Name of the queue.
            model: Name of the target model.
        """
        with self._lock:
            return [each for each in self._deaths if (each.queue, each.model) == (queue, model)]

    def replace(self, queue: str, deaths: Sequence[Deaths]) -> None:
        """Replaces the rows of a queue, and writes the file if that changes them.

        Args:
            queue: Name of the queue.
            deaths: Rows of that queue under which trainers have died, of all models.
        """
        with self._lock:
            if [each for each in self._deaths if each.queue == queue] == [*deaths]:
                return
            self._deaths = [each for each in self._deaths if each.queue != queue] + [*deaths]
            write_entries(self._path, self._deaths, "deaths of trainers")

    def _read(self) -> list[Deaths]:
        try:
            return read(self._path)
        except FileNotFoundError:
            return []
        except (CorruptFileError, OSError) as error:
            _log.error("Deaths of trainers are counted from 0 again: %s", error)
            return []


def read(path: Path) -> list[Deaths]:
    """Returns the rows in a provider's file under which trainers have died.

    Args:
        path: Path of the file.

    Raises:
        CorruptFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    return read_entries(path, Deaths, "deaths")


def read_entries(path: Path, kind: Callable[..., _T], what: str) -> list[_T]:
    """Returns the entries of a provider's file, each of rows and the trainers of these.

    Args:
        path: Path of the file.
        kind: Class of an entry, with the fields `begin`, `end` and `trainers`.
        what: Noun of the entries, for errors.

    Raises:
        CorruptFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    entries, _ = checked_json.read(path)
    try:
        return [_entry(kind, **entry) for entry in entries]
    except TypeError as error:
        raise CorruptFileError(f"{path} does not list {what}: {error!r}") from error


def write_entries(path: Path, entries: Sequence[Any], what: str) -> None:
    """Writes the entries of a provider's file, or logs why that failed.

    Args:
        path: Path of the file.
        entries: Instances of a dataclass.
        what: Noun of the entries, for the log.
    """
    content, _ = checked_json.encoded([dataclasses.asdict(each) for each in entries])
    try:
        write_whole(path, content)
    except OSError as error:
        _log.error("%s: %s could not be written: %s", path, what, error)


def _entry(
    kind: Callable[..., _T],
    begin: Sequence[int],
    end: Sequence[int],
    trainers: Sequence[str],
    **fields: Any,
) -> _T:
    return kind(
        begin=QueuePosition(*begin), end=QueuePosition(*end), trainers=tuple(trainers), **fields
    )
