"""Base class of formats."""

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
        path: The file.
        begin: Its start: in bytes for text files and TFRecord, in records for compressed TFRecord,
            in row groups for Parquet.
        end: Its end, likewise.
        first_row: Number of samples before it in the file.
        rows: Number of samples in it.
    """

    path: Path
    begin: int
    end: int
    first_row: int
    rows: int


class Format(abc.ABC):
    """A file format of samples.

    `Csv`, `Libfm`, `Criteo`, `Parquet` and `TFRecord` are formats. A custom format needs `units`
    and `read_unit`; `FileBatches` and `DirectoryStream` then accept it.
    """

    @abc.abstractmethod
    def units(self, path: Path) -> list[Unit]:
        """Cuts a file into at least one unit; the units, in order, cover the whole file.

        Raises:
            DataError: The file does not have this format.
        """

    @abc.abstractmethod
    def read_unit(self, unit: Unit) -> Clicks:
        """Returns the samples of a unit.

        Raises:
            DataError: A value is malformed; file, place, what was wanted and what came are named.
        """

    def head(self, unit: Unit) -> Clicks:
        """Returns a unit's first samples, at least one, to show the columns.

        By default it reads the whole unit.
        """
        return self.read_unit(unit)

    def read(self, path: str | os.PathLike[str]) -> Clicks:
        """Returns the samples of a whole file, in its order.

        Args:
            path: The file.

        Raises:
            DataError: A value is malformed; file, place, what was wanted and what came are named.
        """
        return Clicks.concatenate([self.read_unit(unit) for unit in self.units(Path(path))])


def malformed(place: str, wanted: str, received: object) -> DataError:
    """Returns the error for a value that is not among the wanted ones."""
    return DataError(f"{place}: wanted {wanted}. Received: {received!r}.")
