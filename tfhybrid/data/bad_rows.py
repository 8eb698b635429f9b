"""Bad rows of files: raised, or skipped, logged, written to a file and counted in each epoch."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfhybrid.data.formats.format import Format, Unit
from tfhybrid.data.formats.unit_rows import Fault
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import ConfigError, DataError

_CHOICES = ("raise", "skip")
_MAX_LOGGED = 10
_logger = logging.getLogger("tfhybrid.data.bad_rows")


class RowAccount(NamedTuple):
    """Rows of one epoch, for one rank. The numbers of all ranks add up to the rows of the files.

    Attributes:
        epoch: Epoch of data.
        rows: Rows of this rank's part of the files in this epoch.
        before: Rows of that part before the position at which this run began to read the epoch. If
            another number of ranks has read these, this rank's share of them.
        trained: Rows that were in a batch.
        bad: Bad rows, which were skipped and reported.
    """

    epoch: int
    rows: int
    before: int
    trained: int
    bad: int


class Rows(NamedTuple):
    """Rows of files, good and bad, in the order in which they are read.

    Attributes:
        clicks: The rows; bad ones have values that mean nothing.
        faults: Fault of each row, an array of objects; `None` if all are good.
    """

    clicks: Clicks
    faults: np.ndarray | None = None

    def take(self, rows: slice | np.ndarray) -> Rows:
        """Returns the rows at these positions, in this order."""
        faults = None if self.faults is None else self.faults[rows]
        return Rows(self.clicks.take(rows), faults)

    @staticmethod
    def concatenate(parts: Sequence[Rows]) -> Rows:
        """Returns the rows of all parts, of which there is at least one."""
        clicks = Clicks.concatenate([part.clicks for part in parts])
        if all(part.faults is None for part in parts):
            return Rows(clicks)
        faults = [
            np.full(len(part.clicks), None, object) if part.faults is None else part.faults
            for part in parts
        ]
        return Rows(clicks, np.concatenate(faults))


class BadRows:
    """The treatment of bad rows in one rank's batches.

    Not thread-safe, other than `read`: one iteration at a time.

    Args:
        choice: `"raise"` or `"skip"`.
        max_bad_rows: Maximum number of bad rows of this rank in an epoch; `None` for no maximum.
        path: File to which bad rows are appended; `None` for none. Several ranks may share it.

    Raises:
        ConfigError: The choice is unknown, or another argument needs `"skip"`.
    """

    def __init__(
        self, choice: str, max_bad_rows: int | None, path: str | os.PathLike[str] | None
    ) -> None:
        if choice not in _CHOICES:
            raise ConfigError(f"bad_rows must be one of {_CHOICES}. Received: {choice!r}.")
        if choice == "raise" and not (max_bad_rows is None and path is None):
            raise ConfigError(
                "max_bad_rows and bad_rows_file need bad_rows='skip'. "
                f"Received: {max_bad_rows=}, bad_rows_file={path!r}."
            )
        if max_bad_rows is not None and max_bad_rows < 0:
            raise ConfigError(f"max_bad_rows must not be negative. Received: {max_bad_rows}.")
        self.skips = choice == "skip"
        self.account: RowAccount | None = None
        self._max_bad_rows = max_bad_rows
        self._path = None if path is None else Path(path)
        self._written: set[tuple[Path, int]] = set()
        self._trained = self._bad = 0

    def read(self, file_format: Format, unit: Unit, part: slice) -> Rows:
        """Returns rows of a unit. Any thread may call it.

        Args:
            file_format: Format of the file.
            unit: Unit to read.
            part: Positions of the rows in the unit.

        Raises:
            DataError: A row of the unit is bad and bad rows raise, or the file cannot be read on.
            OSError: The file cannot be read.
        """
        if not self.skips:
            return Rows(file_format.read_unit(unit).take(part))
        rows = file_format.rows(unit)
        clicks = rows.clicks.take(part)
        if rows.bad is None or not rows.bad[part].any():
            return Rows(clicks)
        faults = np.full(len(clicks), None, object)
        for position in np.flatnonzero(rows.bad[part]).tolist():
            faults[position] = rows.fault(part.start + position)
        return Rows(clicks, faults)

    def begin(self) -> None:
        """Begins the account of an epoch."""
        self._trained = self._bad = 0

    def good(self, rows: Rows) -> Clicks:
        """Returns the good rows of a batch, and reports the bad ones.

        Raises:
            DataError: There are more bad rows in this epoch than `max_bad_rows`.
            OSError: The file of bad rows cannot be written.
        """
        clicks = rows.clicks
        if rows.faults is not None:
            good = np.array([fault is None for fault in rows.faults], bool)
            bad = [fault for fault in rows.faults if fault is not None]
            if bad:
                clicks = clicks.take(np.flatnonzero(good))
                self._report(bad)
        self._trained += len(clicks)
        return clicks

    def end(self, epoch: int, rows: int, before: int) -> None:
        """Ends the account of an epoch.

        Args:
            epoch: Epoch that has ended.
            rows: Rows of this rank's part of the files in this epoch.
            before: Rows of that part before the position at which reading began.

        Raises:
            DataError: The trained, the skipped and the earlier rows do not add up to `rows`.
        """
        self.account = RowAccount(epoch, rows, before, self._trained, self._bad)
        if before + self._trained + self._bad != rows:
            raise DataError(
                f"Expected {rows} rows of this rank in epoch {epoch}. Received: {self.account}"
            )
        if self._bad:
            _logger.warning(
                "Epoch %d: %d of %d rows of this rank were bad and were skipped.",
                epoch,
                self._bad,
                rows - before,
            )

    def _report(self, faults: Sequence[Fault]) -> None:
        for number, fault in enumerate(faults, self._bad):
            if number < _MAX_LOGGED:
                _logger.warning("A bad row is skipped: %s", fault.error())
        self._bad += len(faults)
        if self._path is not None:
            self._append(self._path, faults)
        if self._max_bad_rows is not None and self._bad > self._max_bad_rows:
            raise DataError(
                f"Expected at most {self._max_bad_rows} bad rows in an epoch (max_bad_rows=). "
                f"Received: {self._bad}, the last of which is {faults[-1].error()}"
            )

    def _append(self, path: Path, faults: Sequence[Fault]) -> None:
        """Appends a line for each row that this object has not written yet."""
        new = {(fault.path, fault.row): fault for fault in faults}
        lines = [_line(fault) for row, fault in new.items() if row not in self._written]
        self._written.update(new)
        if not lines:
            return
        text = "".join(lines).encode()
        # One call for whole lines, so that lines of several ranks do not mix.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            if (written := os.write(descriptor, text)) != len(text):
                raise OSError(f"{path}: wrote {written} of {len(text)} bytes of bad rows.")
        finally:
            os.close(descriptor)


def _line(fault: Fault) -> str:
    fields: dict[str, Any] = {
        "path": str(fault.path),
        "row": fault.row,
        "column": fault.column,
        "reason": fault.reason,
    }
    return json.dumps(fields) + "\n"
