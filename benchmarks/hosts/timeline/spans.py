"""Spans of a rank's phases, and what of them lies under others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

Interval = tuple[float, float]  # milliseconds


@dataclasses.dataclass(frozen=True)
class Span:
    """A stay of a rank in a phase, in milliseconds."""

    rank: int
    phase: str
    begin: float
    end: float


def read(directory: Path) -> list[Span]:
    """Returns what the ranks of a job wrote with `TFHYBRID_TIMELINE`, in the order of begins."""
    spans = [
        Span(event["pid"], event["name"], event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3)
        for path in sorted(directory.glob("timeline-*.json"))
        for event in json.loads(path.read_text())["traceEvents"]
        if event["ph"] == "X"
    ]
    return sorted(spans, key=lambda span: span.begin)


def models(spans: Iterable[Span]) -> list[Span]:
    """Returns when the model itself was computed: from a rank's lookup to its summing by key."""
    found, looked_up = [], {}
    for span in spans:
        if span.phase == "lookup":
            looked_up[span.rank] = max(span.end, looked_up.get(span.rank, span.end))
        elif span.phase == "sum" and span.rank in looked_up:
            found.append(Span(span.rank, "model", looked_up.pop(span.rank), span.begin))
    return found


def steps(spans: Iterable[Span], rank: int) -> list[float]:
    """Returns when each step of a rank began to sum its gradients: once a step."""
    return [span.begin for span in spans if span.rank == rank and span.phase == "sum"]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns the same time as intervals that do not touch.

    Example:

    >>> union([(3, 4), (0, 2), (1, 3)])
    [(0, 4)]
    """
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def overlap(one: Iterable[Interval], other: Iterable[Interval]) -> float:
    """Returns for how long both go on.

    Example:

    >>> overlap([(0, 4)], [(1, 2), (3, 9)])
    2
    """
    others = union(other)
    return sum(
        max(0, min(end, its_end) - max(begin, its_begin))
        for begin, end in union(one)
        for its_begin, its_end in others
    )
