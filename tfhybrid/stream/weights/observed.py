"""Statistics of the rows that trainers trained: event times, and the model's scores and labels.

They are sent with an update, and the sync unit adds them up. They give the freshness of a
publication, and the AUC that can withhold a publication. They never change a weight.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

_MAX_TIMES = 512
_BITS = 16  # low bits of a float32 score that are dropped; a bfloat16 remains


@dataclasses.dataclass(frozen=True)
class Observed:
    """Statistics of some rows. `+` merges those of several updates.

    Args:
        rows: Number of rows trained. Not part of the JSON: the update contains it. Default 0.
        times: Number of rows by event time, in seconds since 1970, rounded down; to more than a
            second if there are more than 512 times. Default none.
        scores: Number of rows with a negative and with a positive label, by rounded score. A row
            is scored before it is trained. Default none.

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
        """Returns the statistics of rows with these event times.

        Rows of unknown time count in `rows` alone.

        Args:
            times: Event time of each row in seconds since 1970, float `[n]`; NaN if unknown.
        """
        finite = times[np.isfinite(times)]
        seconds, counts = np.unique(np.floor(finite).astype(np.int64), return_counts=True)
        histogram = dict(zip(seconds.tolist(), counts.tolist(), strict=True))
        return cls(len(times), _coarser(histogram))

    @classmethod
    def of_scores(cls, scores: np.ndarray, labels: np.ndarray) -> Observed:
        """Returns the statistics of scores on rows that were not trained yet; their `rows` is 0.

        Args:
            scores: Outputs of the model, probabilities or logits, `[n]`; rounded to bfloat16.
            labels: Label of each row, 0 or 1, `[n]`.
        """
        ranks = _score_ranks(np.asarray(scores, np.float32).ravel())
        positive = np.asarray(labels).ravel() > 0.5
        distinct, which = np.unique(ranks, return_inverse=True)
        counts = np.zeros((len(distinct), 2), np.int64)
        np.add.at(counts, (which, positive.astype(np.int64)), 1)
        pairs = ((zeros, ones) for zeros, ones in counts.tolist())
        return cls(scores=dict(zip(distinct.tolist(), pairs, strict=True)))

    @property
    def judged(self) -> int:
        """Number of rows for which there is a score, an output of the model."""
        return sum(map(sum, self.scores.values()))

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve; ties count one half. `None` without labels of both kinds."""
        counts = np.array([self.scores[rank] for rank in sorted(self.scores)], np.float64)
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
        for rank, (negative, positive) in other.scores.items():
            before = scores.get(rank, (0, 0))
            scores[rank] = before[0] + negative, before[1] + positive
        return Observed(self.rows + other.rows, _coarser(times), scores)

    def to_json(self) -> dict[str, Any]:
        """Returns event times and scores as JSON; the number of rows is not part of it."""
        return {
            "times": [list(each) for each in self.times.items()],
            "scores": [[rank, *counts] for rank, counts in self.scores.items()],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], rows: int) -> Observed:
        """Returns the statistics that `to_json` encoded.

        Args:
            fields: JSON object from `to_json`. Missing fields count as empty.
            rows: Number of rows trained.

        Raises:
            ValueError, TypeError: A field is malformed.
        """
        return cls(
            rows,
            {int(second): int(count) for second, count in fields.get("times", ())},
            {int(rank): (int(no), int(yes)) for rank, no, yes in fields.get("scores", ())},
        )


def quantile(times: Mapping[int, int], now: float, level: float) -> float:
    """Returns a quantile of the ages of rows, in seconds.

    Args:
        times: Number of rows by event time, in seconds since 1970; at least one row.
        now: Time at which the ages are measured, in seconds since 1970.
        level: Level of the quantile, from 0 to 1.

    Example:

    >>> quantile({100: 98, 50: 2}, now=110, level=0.5), quantile({100: 98, 50: 2}, 110, 0.99)
    (10.0, 60.0)
    """
    seconds = sorted(times, reverse=True)
    counts = np.cumsum([times[second] for second in seconds])
    return float(now - seconds[int(np.searchsorted(counts, level * counts[-1]))])


def _score_ranks(scores: np.ndarray) -> np.ndarray:
    """Returns an integer per score in the same order; equal for scores that round to the same."""
    bits = (scores + np.float32(0)).view(np.int32)  # no -0
    ordered = np.where(bits < 0, ~(bits & 0x7FFFFFFF), bits)
    return ordered >> _BITS


def _coarser(times: dict[int, int]) -> dict[int, int]:
    """Rounds times down to multiples of 2, 4, 8 and so on seconds until `_MAX_TIMES` remain."""
    step = 1
    while len(times) > _MAX_TIMES:
        step *= 2
        rounded: dict[int, int] = {}
        for second, count in times.items():
            start = second // step * step
            rounded[start] = rounded.get(start, 0) + count
        times = rounded
    return times
