"""Base class of file formats, and the parts of files that it reads."""

from __future__ import annotations

import abc
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfhybrid.data.formats.agreed_types import AgreedTypes
from tfhybrid.data.formats.unit_rows import UnitRows
from tfhybrid.data.samples.clicks import Clicks

MISSING_KEY = -1
"""The key of an empty field in `Criteo`; no other field can have it."""


class Unit(NamedTuple):
    """A part of a file that can be read on its own.

    Attributes:
        path: Path of the file.
        begin: Start of the part: in bytes for text files and TFRecord, those of the content if the
            file is compressed; in row groups for Parquet.
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

    def agreeing(self, types: AgreedTypes) -> Format:
        """Returns a format that reads the same columns and whose files must agree on types.

        The default implementation returns this format, whose files are not compared.

        Args:
            types: Types of the files so far. `scan` and `rows` of the result add to them.
        """
        del types
        return self

    def scan(self, path: Path) -> list[Unit]:
        """Cuts a file into parts as `units` does, and compares its columns with other files.

        Several threads may call it. The default implementation compares nothing.

        Raises:
            DataError: The file does not have this format, or its columns do not have the types
                that they have in another file.
            OSError: The file cannot be read.
        """
        return self.units(path)

    def compare_scanned(self) -> None:
        """Compares what `scan` has kept of all files, before the first sample is used.

        The default implementation does nothing.

        Raises:
            DataError: A column has different types in two files. The message names both.
        """
        return

    def rows(self, unit: Unit) -> UnitRows:
        """Returns the samples of `unit`, good and bad, in the order of the file.

        Several threads may call it. The default implementation knows no bad rows: `read_unit`
        raises for them.

        Raises:
            DataError: The part cannot be read at all.
            OSError: The file cannot be read.
        """
        return UnitRows(self.read_unit(unit))

    def head(self, unit: Unit) -> Clicks:
        """Returns the first samples of a part of a file, at least one, which show the columns.

        The default implementation reads the whole part.

        Raises:
            DataError: A value is malformed.
            OSError: The file cannot be read.
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
        agreeing = self.agreeing(AgreedTypes())
        units = agreeing.scan(Path(path))
        return Clicks.concatenate([agreeing.read_unit(unit) for unit in units])


def hashed_strings(texts: np.ndarray) -> np.ndarray:
    """Returns the `string_keys` of distinct texts, int64.

    Args:
        texts: Array of str or bytes objects.
    """
    from tfhybrid.data.samples.strings import string_keys  # imports TensorFlow

    return string_keys(texts).numpy()
