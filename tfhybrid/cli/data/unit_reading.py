"""Reading of sample files, one unit after another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfhybrid.cli.terminal.console import progress
from tfhybrid.data.formats.agreed_types import AgreedTypes
from tfhybrid.data.formats.format import Format
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.sharding import Shard

_ALL = Shard(0, 1)


def read_units(
    paths: list[Path],
    file_format: Format,
    what: str,
    use: Callable[[Clicks], object],
    shard: Shard = _ALL,
) -> int:
    """Reads files one unit at a time, behind a progress bar.

    All files are scanned for their units, and so must agree on the types of columns.

    Args:
        paths: Files of samples.
        file_format: The files' format.
        what: Label of the bar, such as "Reading".
        use: Function to call with the samples of each unit. Its errors propagate.
        shard: The part of the units to read, every `size`-th one. Default: all.

    Returns:
        The number of samples that were read.

    Raises:
        DataError: A value of the files is malformed, or a column has different types in two files.
        OSError: A file cannot be read.
    """
    samples = seen = 0
    agreeing = file_format.agreeing(AgreedTypes())
    with progress(what, sum(path.stat().st_size for path in paths)) as advance:
        for path in paths:
            size, units = path.stat().st_size, agreeing.scan(path)
            agreeing.compare_scanned()
            for unit in units:
                if unit.rows and seen % shard.size == shard.rank:
                    clicks = agreeing.read_unit(unit)
                    samples += len(clicks)
                    use(clicks)
                seen += bool(unit.rows)
                advance(size // len(units))
    return samples
