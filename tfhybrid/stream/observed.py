"""What trainers have seen of the rows that they trained: when they happened, and how the model did.

It travels with an update and is summed up by the sync unit: from it come the freshness of a
publication and the AUC by which a publication is withheld. It changes no weight.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

_MOST_TIMES = 512
_BITS = 16  # of a score that are dropped: what is left is a bfloat16


@dataclasses.dataclass(frozen=True)
class Observed:
    """Observations of some rows; those of several updates are added.

    Args:
        rows: How many rows were trained. It does not travel: an update says it.
        times: Rows by event time, in seconds since 1970.
        scores: By rounded score, how many rows with a negative and with a positive label had it,
            before they were trained on.

    Example:

    >>> seen = Observed.of_times(np.array([10.2, 10.9, 11.0]))
    >>> seen += Observed.of_scores(np.array([0.1, 0.9]), np.array([0, 1]))
    >>> seen.rows, seen.times, seen.auc
    (3, {10: 2, 11: 1}, 1.0)
    """

    rows: int = 0
    times: Mapping[int, int] = dataclasses.field(default_factory=dict)
    scores: Mapping[int, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_times(cls, times: np.ndarray) -> Observed:
        """Returns rows that happened at these times, in seconds since 1970; NaN is not known."""
        known = times[np.isfinite(times)]
        seconds, counts = np.unique(np.floor(known).astype(np.int64), return_counts=True)
        found = dict(zip(seconds.tolist(), counts.tolist(), strict=True))
        return cls(len(times), _coarser(found))

    @classmethod
    def of_scores(cls, scores: np.ndarray, labels: np.ndarray) -> Observed:
        """Returns how a model did on rows that it was not trained on yet.

        Args:
            scores: Its outputs `[n]`, probabilities or logits; rounded to bfloat16.
            labels: 0 or 1, `[n]`.
        """
        places = _places(np.asarray(scores, np.float32).ravel())
        positive = np.asarray(labels).ravel() > 0.5
        found, which = np.unique(places, return_inverse=True)
        counts = np.zeros((len(found), 2), np.int64)
        np.add.at(counts, (which, positive.astype(np.int64)), 1)
        pairs = (tuple(pair) for pair in counts.tolist())
        return cls(scores=dict(zip(found.tolist(), pairs, strict=True)))

    @property
    def judged(self) -> int:
        """How many rows have a score."""
        return sum(map(sum, self.scores.values()))

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve; equal scores count half. `None` if a class is missing."""
        counts = np.array([self.scores[place] for place in sorted(self.scores)], np.float64)
        negative, positive = counts.reshape(-1, 2).sum(axis=0)
        if not negative or not positive:
            return None
        below = np.cumsum(counts[:, 0]) - counts[:, 0] / 2
        return float(np.dot(below, counts[:, 1]) / (negative * positive))

    def __add__(self, other: Observed) -> Observed:
        times = dict(self.times)
        for second, count in other.times.items():
            times[second] = times.get(second, 0) + count
        scores = dict(self.scores)
        for place, (negative, positive) in other.scores.items():
            before = scores.get(place, (0, 0))
            scores[place] = before[0] + negative, before[1] + positive
        return Observed(self.rows + other.rows, _coarser(times), scores)

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON can say it."""
        return {
            "times": [list(each) for each in self.times.items()],
            "scores": [[place, *counts] for place, counts in self.scores.items()],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any], rows: int) -> Observed:
        """Returns what `to_json` was called on, of so many rows; nothing may have been said."""
        return cls(
            rows,
            {int(second): int(count) for second, count in found.get("times", ())},
            {int(place): (int(no), int(yes)) for place, no, yes in found.get("scores", ())},
        )


def quantile(times: Mapping[int, int], now: float, share: float) -> float:
    """Returns how long ago rows happened: what a share of them is not above.

    Args:
        times: Rows by event time, at least one.
        now: In seconds since 1970.
        share: From 0 to 1.

    Example:

    >>> quantile({100: 98, 50: 2}, now=110, share=0.5), quantile({100: 98, 50: 2}, 110, 0.99)
    (10.0, 60.0)
    """
    seconds = sorted(times, reverse=True)
    counts = np.cumsum([times[second] for second in seconds])
    return float(now - seconds[int(np.searchsorted(counts, share * counts[-1]))])


def _places(scores: np.ndarray) -> np.ndarray:
    """Returns numbers in the order of the scores, of which close ones have the same."""
    bits = (scores + np.float32(0)).view(np.int32)  # no -0
    ordered = np.where(bits < 0, ~(bits & 0x7FFFFFFF), bits)
    return ordered >> _BITS


def _coarser(times: dict[int, int]) -> dict[int, int]:
    """Rounds times down to multiples of 2, 4, 8 and so on seconds until they are few."""
    step = 1
    while len(times) > _MOST_TIMES:
        step *= 2
        rounded: dict[int, int] = {}
        for second, count in times.items():
            place = second // step * step
            rounded[place] = rounded.get(place, 0) + count
        times = rounded
    return times
