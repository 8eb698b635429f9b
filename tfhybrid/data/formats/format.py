"""What all formats have in common."""

from __future__ import annotations

import abc
import os
from pathlib import Path
from typing import NamedTuple

from tfhybrid.data.clicks import Clicks
from tfhybrid.errors import DataError

MISSING_KEY = -1
"""The key that `Criteo` gives an empty field; no field that is there can have it."""


class Unit(NamedTuple):
    """A part of a file that can be read by itself.

    Attributes:
        path: The file.
        begin: Where it begins: bytes of a text file or of TFRecord, records of a compressed one,
            row groups of Parquet.
        end: Where it ends, likewise.
        first_row: Samples of the file that come before.
        rows: Samples that it holds.
    """

    path: Path
    begin: int
    end: int
    first_row: int
    rows: int


class Format(abc.ABC):
    """How samples are written in files.

    `Csv`, `Libfm`, `Criteo`, `Parquet` and `TFRecord` are formats; one of your own needs `units`
    and `read_unit`, and then `FileBatches` and `DirectoryStream` take it too.
    """

    @abc.abstractmethod
    def units(self, path: Path) -> list[Unit]:
        """Cuts a file into units, one at least, in order and together the whole file.

        Raises:
            DataError: This is no file of the format.
        """

    @abc.abstractmethod
    def read_unit(self, unit: Unit) -> Clicks:
        """Returns the samples of a unit.

        Raises:
            DataError: A value is malformed; file, place, what was wanted and what came are named.
        """

    def head(self, unit: Unit) -> Clicks:
        """Returns a unit's first samples, one at least, which show what columns there are.

        Reads the whole unit, unless a format knows better.
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
    """Returns the error for what is none of the values wanted."""
    return DataError(f"{place}: wanted {wanted}. Received: {received!r}.")
