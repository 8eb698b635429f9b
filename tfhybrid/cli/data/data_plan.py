"""Counts of the ids in files: the `expected_rows` to set for tables, and the memory they need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from tfhybrid.cli.data.distinct_ids import DistinctIds
from tfhybrid.cli.data.unit_reading import read_units
from tfhybrid.cli.terminal.console import show, show_table
from tfhybrid.data.formats.format import Format
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import ConfigError
from tfhybrid.store.table_memory import TableBytes


@dataclasses.dataclass
class _Counted:
    """Counts of a table: the features that share it, their keys, and their distinct keys."""

    features: list[str]
    keys: int = 0
    ids: DistinctIds = dataclasses.field(default_factory=DistinctIds)


def of_files(
    paths: list[Path],
    file_format: Format,
    shared: dict[str, list[str]],
    bytes_of_rows: Callable[[int], TableBytes],
) -> dict[str, Any]:
    """Counts the ids of each feature, one unit of a file at a time.

    Args:
        paths: Files of samples.
        file_format: The files' format.
        shared: Table name -> features that share the table. Every other feature has its own table.
        bytes_of_rows: Function that returns a table's size for a number of rows.

    Returns:
        `files`, `samples` and `tables`, ready for JSON.

    Raises:
        ConfigError: A shared table names a feature that the files do not have.
        DataError: A value of the files is malformed, or a column has different types in two files.
        OSError: A file cannot be read.
    """
    samples, counted = _count(paths, file_format, shared)
    tables = {}
    for name, table in counted.items():
        count = table.ids.count()
        expected = rounded_up(count.most)
        size = bytes_of_rows(expected)
        tables[name] = {
            "features": table.features,
            "keys_per_sample": table.keys / max(samples, 1),
            "ids": dataclasses.asdict(count),
            "expected_rows": expected,
            "bytes": size.total,
            "peak_bytes": size.peak,
            "checkpoint_bytes": size.checkpoint,
        }
    return {"files": len(paths), "samples": samples, "tables": tables}


def shared_of(options: list[str]) -> dict[str, list[str]]:
    """Parses `--shared` options: table name -> features that share the table.

    Args:
        options: Values of the option, such as `items=item,liked`.

    Returns:
        Features by the name of their table.

    Example:

    >>> shared_of(["items=item,liked"])
    {'items': ['item', 'liked']}

    Raises:
        ConfigError: An option is not of the form TABLE=FEATURE,FEATURE.
    """
    shared = {}
    for option in options:
        name, _, features = option.partition("=")
        if not (name and features):
            raise ConfigError(f"--shared must be TABLE=FEATURE,FEATURE. Received: {option!r}")
        shared[name] = features.split(",")
    return shared


def rounded_up(count: int) -> int:
    """Rounds a count up to two significant digits.

    Args:
        count: Number of at least 0.

    Example:

    >>> rounded_up(1_234_567), rounded_up(95), rounded_up(991)
    (1300000, 95, 1000)
    """
    unit = 10 ** max(0, len(str(count)) - 2)
    return -(-count // unit) * unit


def show_counts(counts: dict[str, Any]) -> None:
    """Writes the numbers of ids to standard output, as text.

    Args:
        counts: Result of `of_files`.
    """
    tables = counts["tables"]
    show(f"{counts['files']} file(s), {counts['samples']:,} samples")
    rows = [
        [
            name,
            f"{table['ids']['ids']:,}",
            _error(table["ids"]),
            f"{table['keys_per_sample']:.3g}",
            f"{table['expected_rows']:,}",
            decimal(table["bytes"]),
        ]
        for name, table in tables.items()
    ]
    columns = ["table", "ids", "error", "keys a sample", "expected_rows", "memory"]
    show_table(columns, rows, text=["table", "error"])
    for name, table in tables.items():
        show(f"{name}: TableConfig(..., expected_rows={table['expected_rows']:_})")


def _error(ids: dict[str, Any]) -> str:
    if ids["exact"]:
        return "exact"
    return f"±{100 * (ids['most'] - ids['least']) / 2 / ids['ids']:.1f} %"


def _count(
    paths: list[Path], file_format: Format, shared: dict[str, list[str]]
) -> tuple[int, dict[str, _Counted]]:
    table_of = {feature: table for table, features in shared.items() for feature in features}
    counted = {table: _Counted(features) for table, features in shared.items()}

    def count(clicks: Clicks) -> None:
        if unknown := sorted(table_of.keys() - clicks.features.keys()):
            raise ConfigError(
                f"--shared must name features of the files, {sorted(clicks.features)}. "
                f"Received: {unknown}"
            )
        for feature, keys in clicks.features.items():
            of_table = counted.setdefault(table_of.get(feature, feature), _Counted([feature]))
            of_table.keys += _number_of_keys(keys)
            of_table.ids.add(keys)

    return read_units(paths, file_format, "Counting", count), counted


def _number_of_keys(keys: Any) -> int:
    return len(keys.values) if hasattr(keys, "values") else keys.size
