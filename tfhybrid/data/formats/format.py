"""Base class of file formats, and the parts of files that it reads."""

from __future__ import annotations

import abc
import os
from pathlib import Path
from typing import NamedTuple

from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import DataError

MISSING_KEY = -1
"""The key of an empty field in `Criteo`; no other field can have it."""


class Unit(NamedTuple):
    """A part of a file that can be read on its own.

    Attributes:
        path: Path of the file.
        begin: Start of the part, in bytes for text files and TFRecord, in records for compressed
            TFRecord, in row groups for Parquet.
        end: End of the part, exclusive, in the same measure as `begin`.
        first_row: Number of samples before the part in the file.
        rows: Number of samples in the part.
    """

    path: Path
    begin: int
    end: int
    first_row: int
    rows: int


class Format(abc.ABC):
    """Base class of file formats of samples.

    `Csv`, `Libfm`, `Criteo`, `Parquet` and `TFRecord` are formats. A custom format implements
    `units` and `read_unit`, which several threads may call; `FileBatches` and `DirectoryStream`
    then accept it.
    """

    @abc.abstractmethod
    def units(self, path: Path) -> list[Unit]:
        """Cuts a file into parts: at least one, in order, that cover the whole file.

        Raises:
            DataError: The file does not have this format.
            OSError: The file cannot be read.
        """

    @abc.abstractmethod
    def read_unit(self, unit: Unit) -> Clicks:
        """Returns the samples of `unit`, a part of a file, in the order of the file.

        Several threads may call it.

        Raises:
            DataError: A value is malformed. The message has the file, the location, what was
                expected and what was received.
            OSError: The file cannot be read.
        """

    def head(self, unit: Unit) -> Clicks:
        """Returns the first samples of a part of a file, at least one, which show the columns.

        The default implementation reads the whole part.

        Raises:
            DataError: A value is malformed.
        """
        return self.read_unit(unit)

    def read(self, path: str | os.PathLike[str]) -> Clicks:
        """Returns the samples of a whole file, in the order of the file.

        Args:
            path: Path of the file.

        Raises:
            DataError: A value is malformed. The message has the file, the location, what was
                expected and what was received.
            OSError: The file cannot be read.
            ConfigError: The arguments of the format contradict each other.
        """
        return Clicks.concatenate([self.read_unit(unit) for unit in self.units(Path(path))])


def malformed(location: str, expected: str, received: object) -> DataError:
    """Returns the error for a malformed value.

    Args:
        location: Location of the value: the file, and the line, row or record.
        expected: Description of valid values.
        received: Value in the file.
    """
    return DataError(f"{location}: expected {expected}. Received: {received!r}.")
