"""The rows of a unit, good and bad, and the check of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.errors import DataError
from tfhybrid.values.cells import value_at
from tfhybrid.values.checking import Checked
from tfhybrid.values.column import Column
from tfhybrid.values.reasons import Reason, expected


class Fault(NamedTuple):
    """The fault of a bad row.

    Attributes:
        path: Path of the file.
        row: Number of the row in the file, from 0.
        column: Name of the column; empty if the row as a whole is bad.
        location: Location of the value, as errors name it.
        expected: Description of good values.
        received: Value in the file, as errors show it.
    """

    path: Path
    row: int
    column: str
    location: str
    expected: str
    received: str

    @property
    def reason(self) -> str:
        """The expected and the received value, in words."""
        return f"expected {self.expected}. Received: {self.received}."

    def error(self) -> DataError:
        """Returns the error that names the file, the location and the fault."""
        return DataError(f"{self.location}: {self.reason}")


class _BadColumn(NamedTuple):
    """A column with bad rows, as it was read and checked."""

    name: str
    reasons: np.ndarray
    value: Callable[[int], Any]
    expected: Callable[[Reason], str]


class UnitRows:
    """All rows of a unit, in the order of the file. Bad ones have values that mean nothing.

    Args:
        clicks: The rows.
        bad: Mask of the bad rows; `None` (default) if there are none.
        fault_of: Function that returns the fault of a bad row, by its number in the unit.
    """

    def __init__(
        self,
        clicks: Clicks,
        bad: np.ndarray | None = None,
        fault_of: Callable[[int], Fault] | None = None,
    ) -> None:
        self.clicks = clicks
        self.bad = bad
        self._fault_of = fault_of

    def fault(self, row: int) -> Fault:
        """Returns the fault of a bad row.

        Args:
            row: Number of the row in the unit, from 0.
        """
        assert self._fault_of is not None, "a unit without bad rows"
        return self._fault_of(row)

    def all_good(self) -> Clicks:
        """Returns the rows.

        Raises:
            DataError: A row is bad. The message has the file, the location, what was expected and
                what was received.
        """
        if self.bad is not None:
            raise self.fault(int(np.argmax(self.bad))).error()
        return self.clicks


class UnitCheck:
    """Collects the checked columns of a unit, and the faults of its rows.

    Args:
        path: Path of the file.
        first_row: Number of rows before the unit in the file.
        rows: Number of rows in the unit.
        location_of: Function that describes the location of a value by the name of its column and
            the number of its row in the unit.
        absent: Description of a value that is `None` or an empty text, for errors. By default they
            show the value itself.
    """

    def __init__(
        self,
        path: Path,
        first_row: int,
        rows: int,
        location_of: Callable[[str, int], str],
        *,
        absent: str = "",
    ) -> None:
        self.path = path
        self._first_row = first_row
        self._rows = rows
        self._location_of = location_of
        self._absent = absent
        self._bad: np.ndarray | None = None
        self._columns: list[_BadColumn] = []

    def add(
        self,
        column: Column,
        checked: Checked,
        values: Any,
        *,
        lengths: np.ndarray | None = None,
        wording: Mapping[Reason, str] | None = None,
    ) -> np.ndarray | Ragged:
        """Adds a column that was checked, and returns its values as `Clicks` holds them.

        Args:
            column: Description of the column.
            checked: Result of the check.
            values: Values that were checked, for errors.
            lengths: Number of values of each row, if `values` are flat.
            wording: Descriptions of good values, for reasons for which the general one lacks
                advice. Default: none.
        """
        if checked.bad.any():
            own = dict(wording or {})
            if column.role != "label" and (column.low is not None or column.high is not None):
                own.pop(Reason.RANGE, None)
            ends = None if lengths is None else np.cumsum(lengths)
            self._note(
                _BadColumn(
                    column.name,
                    checked.reasons,
                    lambda row: value_at(values, row, ends),
                    lambda reason: own.get(reason) or expected(column, reason),
                ),
                checked.bad,
            )
        if checked.lengths is not None:
            return Ragged.from_lengths(checked.values, checked.lengths)
        return checked.values

    def add_bad_rows(self, texts: Mapping[int, Any], expected_rows: str) -> None:
        """Adds rows that are bad as a whole.

        Args:
            texts: Received rows, by their number in the unit.
            expected_rows: Description of good rows.
        """
        if not texts:
            return
        bad = np.zeros(self._rows, bool)
        bad[list(texts)] = True
        whole = _BadColumn("", bad.astype(np.uint8), texts.__getitem__, lambda _: expected_rows)
        self._note(whole, bad)
        self._columns.insert(0, self._columns.pop())

    def rows(self, clicks: Clicks) -> UnitRows:
        """Returns the rows of the unit.

        Args:
            clicks: Samples that were made of the checked columns.
        """
        return UnitRows(clicks, self._bad, self._fault)

    def _note(self, column: _BadColumn, bad: np.ndarray) -> None:
        self._columns.append(column)
        self._bad = bad if self._bad is None else self._bad | bad

    def _fault(self, row: int) -> Fault:
        column = next(each for each in self._columns if each.reasons[row])
        value = column.value(row)
        return Fault(
            self.path,
            self._first_row + row,
            column.name,
            self._location_of(column.name, row),
            column.expected(Reason(int(column.reasons[row]))),
            (value in (None, "") and self._absent) or repr(value),
        )
