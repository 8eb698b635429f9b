"""Statistics of numbers in one pass: exact counts, mean and variance; quantiles within a bound."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

EXACT_VALUES = 1 << 20  # 4 MB per column
_SKETCH_SIZE = 4096  # 50 KB per column; the rank error is 0.07 %
_UNIT = 172  # every float32 is a multiple of 2^-149; frexp moves that of the smallest ones by 23


class NumberStatistics:
    """Statistics of a column of numbers. NaN is a missing number, and there are no infinite ones.

    Sums are exact, so means and variances depend neither on the order of the values nor on parts
    that are merged. Those of logarithms are of `tfhybrid.features.Log`, log(1 + max(x, 0)), as
    float32. Quantiles are exact up to `exact_values` values; beyond them they come from a KLL
    sketch, which draws random numbers: the share of values below one is off by the rank error,
    with a confidence of 99 %. -0 counts as 0.

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
        self._missing = 0
        self._moments, self._of_logs = ExactMoments(), ExactMoments()
        self._low, self._high = math.inf, -math.inf

    def add(self, numbers: np.ndarray) -> None:
        """Adds numbers, float32 `[n]`."""
        values = numbers[~np.isnan(numbers)] + np.float32(0)
        self._missing += len(numbers) - len(values)
        if not len(values):
            return
        self._low = min(self._low, float(values.min()))
        self._high = max(self._high, float(values.max()))
        self._moments.add(values)
        self._of_logs.add(np.log1p(np.maximum(values.astype(np.float64), 0)).astype(np.float32))
        if self._sketch is not None:
            self._sketch.update(values)
            return
        self._values.append(values)
        self.limit(self.count)

    def limit(self, count: int) -> None:
        """Puts the values into a sketch if there are too many for exact quantiles.

        Args:
            count: Number of values, of these statistics and those that they will be merged with.
        """
        if self._sketch is None and count > self._exact_values:
            from datasketches import kll_floats_sketch

            self._sketch = kll_floats_sketch(_SKETCH_SIZE)
            for each in self._values:
                self._sketch.update(each)
            self._values.clear()

    def merge(self, other: NumberStatistics) -> None:
        """Adds the numbers of other statistics, which have the same `exact_values`.

        Args:
            other: Statistics, not to be used any more.
        """
        self._missing += other._missing
        self._low, self._high = min(self._low, other._low), max(self._high, other._high)
        count = self.count + other.count
        self._moments.merge(other._moments)
        self._of_logs.merge(other._of_logs)
        for each in (self, other):
            each.limit(count)
        if self._sketch is None:
            self._values += other._values
        else:
            self._sketch.merge(other._sketch)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to pickle; a sketch becomes bytes."""
        return {**vars(self), "_sketch": self._sketch and self._sketch.serialize()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if state["_sketch"] is not None:
            from datasketches import kll_floats_sketch

            self._sketch = kll_floats_sketch.deserialize(state["_sketch"])

    @property
    def count(self) -> int:
        """Number of values, without missing ones."""
        return self._moments.count

    def result(self, parts: int) -> dict[str, Any]:
        """Returns the statistics, ready for JSON; of no values only the counts.

        Args:
            parts: Number of parts, about equally large, into which quantiles cut the values.
        """
        counts = {"count": self.count, "missing": self._missing}
        if not self.count:
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
    """Mean and variance of float32 values, from exact sums: whole numbers of a tiny unit.

    Attributes:
        count: Number of values.
    """

    def __init__(self) -> None:
        self.count = self._sum = self._sum_of_squares = 0  # in units of 2^-172 and of 2^-344

    def add(self, values: np.ndarray) -> None:
        """Adds values, finite float32 `[n]`."""
        self.count += len(values)
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

    def merge(self, other: ExactMoments) -> None:
        """Adds the values of other moments."""
        self.count += other.count
        self._sum += other._sum
        self._sum_of_squares += other._sum_of_squares

    @property
    def mean(self) -> float:
        """Mean of the values, of which there is at least one, rounded once."""
        return float(self._mean)

    @property
    def variance(self) -> float:
        """Mean of the squared distances from the mean, rounded once."""
        return float(Fraction(self._sum_of_squares, self.count << 2 * _UNIT) - self._mean**2)

    @property
    def _mean(self) -> Fraction:
        return Fraction(self._sum, self.count << _UNIT)
