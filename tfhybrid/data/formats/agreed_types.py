"""Types of columns, on which all files of a data set must agree."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfhybrid.errors import DataError


class ColumnType(NamedTuple):
    """The type of a column in a file.

    Attributes:
        kind: `"numbers"`, `"strings"`, or `None` if the file has no value that shows it.
        length: Number of values in a row: 1, n, or `None` for lists of any length.
    """

    kind: str | None
    length: int | None

    def __str__(self) -> str:
        kind = self.kind or "missing values"
        if self.length == 1:
            return kind
        return f"lists of {kind}" if self.length is None else f"lists of {self.length} {kind}"


class AgreedTypes:
    """Types on which the files that were read so far agree. Thread-safe.

    Attributes:
        schema: Schema of the last file, whatever its format keeps there; a file with an equal one
            need not be compared column by column. The value is replaced as a whole.
    """

    def __init__(self) -> None:
        self.schema: Any = None
        self._types: dict[str, tuple[ColumnType, Path]] = {}
        self._lock = threading.Lock()

    def add(self, path: Path, types: Mapping[str, ColumnType]) -> None:
        """Adds the types of a file's columns.

        Args:
            path: Path of the file.
            types: Type of each column; one whose type the file does not show may be left out.

        Raises:
            DataError: A column has another type in a file before. The message names both files.
        """
        with self._lock:
            for name, received in types.items():
                agreed, first = self._types.get(name, (received, path))
                kind = agreed.kind or received.kind
                if received.length != agreed.length or (received.kind or kind) != kind:
                    raise DataError(
                        f"{path}, column {name!r}: expected {agreed}, as in {first}. "
                        f"Received: {received}."
                    )
                if name not in self._types or agreed.kind is None:
                    self._types[name] = (ColumnType(kind, agreed.length), path)

    def get(self, name: str) -> ColumnType | None:
        """Returns the type of a column; `None` if no file has shown it."""
        held = self._types.get(name)
        return held and held[0]

    def file_of(self, name: str) -> Path | None:
        """Returns the file that first showed the type of a column; `None` if there is none."""
        held = self._types.get(name)
        return held and held[1]
