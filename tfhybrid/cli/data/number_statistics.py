"""Statistics of numbers in one pass: exact counts, mean and variance; quantiles within a bound."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tfhybrid.cli.data.unit_reading import read_units
from tfhybrid.cli.terminal.console import show, show_table
from tfhybrid.data.formats.format import Format
from tfhybrid.data.samples.clicks import Clicks

EXACT_VALUES = 1 << 20  # 4 MB per column
_SKETCH_SIZE = 4096  # 50 KB per column; the rank error is 0.07 %
_UNIT = 172  # every float32 is a multiple of 2^-149; frexp moves that of the smallest ones by 23


class NumberStatistics:
    """Statistics of a column of numbers. NaN is a missing number, and there are no infinite ones.

    Sums are exact, so means and variances do not depend on the order of the values. Those of
    logarithms are of `tfhybrid.features.Log`, log(1 + max(x, 0)), as float32. Quantiles are
    exact up to `exact_values` values; beyond them they come from a KLL sketch, which draws random
    numbers: the share of values below one is off by the rank error, with a confidence of 99 %.

    Args:
        exact_values: Maximum number of values that are kept for exact quantiles.

    Example:

    >>> statistics = NumberStatistics()
    >>> statistics.add(np.array([1, 2, 3, 6, np.nan], np.float32))
    >>> result = statistics.result(2)
    >>> [result[name] for name in ("count", "missing", "mean", "variance", "quantiles")]
    [4, 1, 3.0, 3.5, [2.0]]
    """

    def __init__(self, exact_values: int = EXACT_VALUES) -> None:
        self._exact_values = exact_values
        self._values: list[np.ndarray] = []
        self._sketch: Any = None
        self._count = self._missing = 0
        self._moments, self._of_logs = ExactMoments(), ExactMoments()
        self._low, self._high = math.inf, -math.inf

    def add(self, numbers: np.ndarray) -> None:
        """Adds numbers, float32 `[n]`."""
        values = numbers[~np.isnan(numbers)]
        self._missing += len(numbers) - len(values)
        if not len(values):
            return
        self._count += len(values)
        self._low = min(self._low, float(values.min()))
        self._high = max(self._high, float(values.max()))
        self._moments.add(values)
        self._of_logs.add(np.log1p(np.maximum(values.astype(np.float64), 0)).astype(np.float32))
        if self._sketch is not None:
            self._sketch.update(values)
            return
        self._values.append(values)
        if self._count > self._exact_values:
            from datasketches import kll_floats_sketch

            self._sketch = kll_floats_sketch(_SKETCH_SIZE)
            for each in self._values:
                self._sketch.update(each)
            self._values.clear()

    def result(self, parts: int) -> dict[str, Any]:
        """Returns the statistics, ready for JSON; of no values only the counts.

        Args:
            parts: Number of parts, about equally large, into which quantiles cut the values.
        """
        counts = {"count": self._count, "missing": self._missing}
        if not self._count:
            return counts
        ranks = [part / parts for part in range(1, parts)]
        if self._sketch is None:
            values = np.concatenate(self._values)
            quantiles, error = np.quantile(values, ranks, method="inverted_cdf"), 0.0
        else:
            quantiles = self._sketch.get_quantiles(ranks, True)
            error = self._sketch.normalized_rank_error(False)
        return counts | {
            "mean": self._moments.mean,
            "variance": self._moments.variance,
            "log_mean": self._of_logs.mean,
            "log_variance": self._of_logs.variance,
            "min": self._low,
            "max": self._high,
            "quantiles": [float(each) for each in quantiles],
            "rank_error": error,
        }


class ExactMoments:
    """Mean and variance of float32 values, from exact sums: whole numbers of a tiny unit."""

    def __init__(self) -> None:
        self._count = self._sum = self._sum_of_squares = 0  # in units of 2^-172 and of 2^-344

    def add(self, values: np.ndarray) -> None:
        """Adds values, finite float32 `[n]`."""
        self._count += len(values)
        fractions, exponents = np.frexp(values.astype(np.float64))
        mantissas = np.ldexp(fractions, 24).astype(np.int64)
        for exponent in np.unique(exponents).tolist():
            of_exponent = mantissas[exponents == exponent]
            squares = of_exponent * of_exponent
            # In halves, whose sums do not leave int64.
            total = (int((squares >> 24).sum()) << 24) + int((squares & 0xFFFFFF).sum())
            shift = exponent - 24 + _UNIT
            self._sum += int(of_exponent.sum()) << shift
            self._sum_of_squares += total << 2 * shift

    @property
    def mean(self) -> float:
        """Mean of the values, of which there is at least one, rounded once."""
        return float(self._mean)

    @property
    def variance(self) -> float:
        """Mean of the squared distances from the mean, rounded once."""
        return float(Fraction(self._sum_of_squares, self._count << 2 * _UNIT) - self._mean**2)

    @property
    def _mean(self) -> Fraction:
        return Fraction(self._sum, self._count << _UNIT)


def of_files(paths: list[Path], file_format: Format, parts: int) -> dict[str, Any]:
    """Returns statistics of the dense columns of files, which are read one unit at a time.

    Args:
        paths: Files of samples.
        file_format: The files' format. Its missing numbers are NaN.
        parts: Number of parts into which quantiles cut the values.

    Returns:
        `files`, `samples` and `columns`, ready for JSON. A column of lists has an entry for each
        position, such as `vector[0]`.

    Raises:
        DataError: A value of the files is malformed, or a column has different types in two files.
        OSError: A file cannot be read.
    """
    columns: dict[str, NumberStatistics] = {}

    def add(clicks: Clicks) -> None:
        for name, numbers in _single_columns(clicks.dense):
            columns.setdefault(name, NumberStatistics()).add(numbers)

    samples = read_units(paths, file_format, "Reading", add)
    statistics = {name: column.result(parts) for name, column in columns.items()}
    return {"files": len(paths), "samples": samples, "columns": statistics}


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
