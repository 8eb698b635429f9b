"""Figures of two sides, each run several times, and which of them moved beyond the noise."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

# What a result says of itself, and by which its settings were chosen.
_NOT_MEASURED = {"date", "machine", "host", "setting", "load_before", "tuning"}
Figures = dict[str, float]


def figures_of(result: Mapping[str, object]) -> Figures:
    """Returns every measured number of a benchmark's result by its path, such as `summary.bound`.

    A list counts as one figure, its median; objects in a list that have the same `side` are
    medians over them.

    Args:
        result: The JSON object that a benchmark wrote.
    """
    numbers: defaultdict[str, list[float]] = defaultdict(list)
    for path, number in _numbers(result, ()):
        numbers[".".join(path)].append(number)
    return {path: statistics.median(of) for path, of in numbers.items()}


def _numbers(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        if math.isfinite(value):
            yield path, float(value)
    elif isinstance(value, list):
        for each in value:
            named = isinstance(each, dict) and "side" in each
            yield from _numbers(each, (*path, str(each["side"])) if named else path)
    elif isinstance(value, dict):
        # The medians of runs stand in a summary.
        skipped = _NOT_MEASURED | ({"runs"} if "summary" in value else set())
        for name, each in value.items():
            if name not in skipped:
                yield from _numbers(each, (*path, name))


@dataclasses.dataclass(frozen=True)
class Difference:
    """A figure of both sides.

    Attributes:
        name: Path of the figure in the result.
        a: Its value in each run of side A.
        b: Its value in each run of side B.
    """

    name: str
    a: list[float]
    b: list[float]

    @property
    def ratio(self) -> float:
        """B's median divided by A's; not a number if A's is 0."""
        median = statistics.median(self.a)
        return statistics.median(self.b) / median if median else math.nan

    @property
    def moved(self) -> bool:
        """Whether all runs of B lie on one side of all runs of A, and further away than A's spread.

        The distance is that of the medians, the spread the difference of A's extremes.
        """
        apart = max(self.a) < min(self.b) or max(self.b) < min(self.a)
        distance = abs(statistics.median(self.b) - statistics.median(self.a))
        return apart and distance > max(self.a) - min(self.a)


def differences(a: list[Figures], b: list[Figures]) -> list[Difference]:
    """Returns the figures that every run has, in the order of the first run of A.

    Args:
        a: The figures of each run of side A.
        b: The figures of each run of side B.
    """
    common = set(a[0]).intersection(*a, *b)
    return [
        Difference(name, [run[name] for run in a], [run[name] for run in b])
        for name in a[0]
        if name in common
    ]


def spread(values: Iterable[float]) -> float:
    """Returns the difference of the extremes divided by the median; not a number if that is 0."""
    ordered = sorted(values)
    median = statistics.median(ordered)
    return (ordered[-1] - ordered[0]) / abs(median) if median else math.nan


def chance(runs: int) -> float:
    """Returns the greatest probability that a figure which did not change counts as moved.

    Of all orders in which the runs can fall, two have all runs of A on one side.

    Args:
        runs: Number of runs of each side.
    """
    return 2 / math.comb(2 * runs, runs)
