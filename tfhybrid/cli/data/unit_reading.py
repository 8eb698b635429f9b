"""Reading of sample files, one unit after another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfhybrid.cli.terminal.console import progress
from tfhybrid.data.formats.agreed_types import AgreedTypes
from tfhybrid.data.formats.format import Format
from tfhybrid.data.samples.clicks import Clicks


def read_units(
    paths: list[Path], file_format: Format, what: str, use: Callable[[Clicks], object]
) -> int:
    """Reads files one unit at a time, behind a progress bar.

    Args:
        paths: Files of samples.
        file_format: The files' format.
        what: Label of the bar, such as "Reading".
        use: Function to call with the samples of each unit. Its errors propagate.

    Returns:
        The number of samples.

    Raises:
        DataError: A value of the files is malformed, or a column has different types in two files.
        OSError: A file cannot be read.
    """
    samples = 0
    agreeing = file_format.agreeing(AgreedTypes())
    with progress(what, sum(path.stat().st_size for path in paths)) as advance:
        for path in paths:
            size, units = path.stat().st_size, agreeing.scan(path)
            agreeing.compare_scanned()
            for unit in units:
                if unit.rows:
                    clicks = agreeing.read_unit(unit)
                    samples += len(clicks)
                    use(clicks)
                advance(size // len(units))
    return samples
