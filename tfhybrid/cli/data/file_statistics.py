"""Statistics of the columns of numbers of files, in one pass over all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tfhybrid import settings
from tfhybrid.cli.data.number_statistics import NumberStatistics
from tfhybrid.cli.data.unit_reading import read_units
from tfhybrid.cli.terminal.console import show, show_table
from tfhybrid.data.formats.format import Format
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.sharding import Shard

_Columns = dict[str, NumberStatistics]


def of_files(paths: list[Path], file_format: Format, parts: int) -> dict[str, Any]:
    """Returns statistics of the dense columns of files, which are read one unit at a time.

    Under `horovodrun`, the units are divided among the ranks. Every rank must call it.

    Args:
        paths: Files of samples.
        file_format: The files' format. Its missing numbers are NaN.
        parts: Number of parts into which quantiles cut the values.

    Returns:
        `files`, `samples` and `columns`, ready for JSON, the same on all ranks. A column of lists
        has an entry for each position, such as `vector[0]`.

    Raises:
        DataError: A value of the files is malformed, or a column has different types in two files.
        OSError: A file cannot be read.
        StoreError: Another rank has failed.
    """
    rank, size, *_ = settings.launcher_ranks()
    of_ranks = _of_units if size == 1 else _of_all_ranks
    samples, columns = of_ranks(paths, file_format, Shard(rank, size))
    statistics = {name: column.result(parts) for name, column in columns.items()}
    return {"files": len(paths), "samples": samples, "columns": statistics}


def _of_units(paths: list[Path], file_format: Format, shard: Shard) -> tuple[int, _Columns]:
    """Returns number of samples and statistics of the units of a rank."""
    columns: _Columns = {}

    def add(clicks: Clicks) -> None:
        for name, numbers in _single_columns(clicks.dense):
            columns.setdefault(name, NumberStatistics()).add(numbers)

    return read_units(paths, file_format, "Reading", add, shard), columns


def _of_all_ranks(paths: list[Path], file_format: Format, shard: Shard) -> tuple[int, _Columns]:
    """Returns number of samples and statistics of the units of all ranks."""
    from tfhybrid import distributed, job

    job.init()
    with distributed.call("tfhybrid data statistics"):
        samples, columns = distributed.together(lambda: _of_units(paths, file_format, shard))
        counts = distributed.allgather_object({name: each.count for name, each in columns.items()})
        for name, column in columns.items():  # so that no rank sends more than it must
            column.limit(sum(of_rank.get(name, 0) for of_rank in counts))
        ranks = distributed.allgather_object((samples, columns))
    merged: _Columns = {}
    for _, of_rank in ranks:
        for name, column in of_rank.items():
            merged.setdefault(name, NumberStatistics()).merge(column)
    return sum(of_rank for of_rank, _ in ranks), merged


def show_statistics(statistics: dict[str, Any]) -> None:
    """Writes statistics to standard output, as a table.

    Args:
        statistics: Result of `of_files`.
    """
    show(f"{statistics['files']} file(s), {statistics['samples']:,} samples")
    heads = ["count", "missing", "mean", "variance", "log_mean", "log_variance", "min", "max"]
    rows = [
        [name, *(f"{column[head]:,.6g}" if head in column else "" for head in heads)]
        for name, column in statistics["columns"].items()
    ]
    show_table(["column", *heads], rows, text=["column"])
    for name, column in statistics["columns"].items():
        if "quantiles" in column:
            error = column["rank_error"]
            bound = f"rank error {100 * error:.2g} %" if error else "exact"
            quantiles = ", ".join(f"{each:.6g}" for each in column["quantiles"])
            show(f"quantiles of {name} ({bound}): {quantiles}")


def _single_columns(dense: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    columns = []
    for name, numbers in dense.items():
        if numbers.ndim == 1:
            columns.append((name, numbers))
        else:
            columns += [(f"{name}[{i}]", numbers[:, i]) for i in range(numbers.shape[1])]
    return columns
