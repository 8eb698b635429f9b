"""Who waits for what in a step: three steps of a job, as its timeline shows them.

    python -m benchmarks.hosts.timeline

Two pictures: two ranks of one host; and two hosts of one rank with a link of 1 Gbit/s, tables
sharded over them, and passes. The step is that of `benchmarks.step.step`. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.hosts.hosts.run import run_on_hosts
from benchmarks.hosts.timeline.spans import Span, models, overlap, read, steps
from benchmarks.support import launch

SIDE = "benchmarks.step.step.tfhybrid_step"
SHOWN = 3  # steps of a picture
PASSES = ("--sharded", "--pass-batches", "2")


@contextlib.contextmanager
def recording() -> Iterator[Path]:
    """Lets jobs that are started within it write their timelines into a directory."""
    with tempfile.TemporaryDirectory(prefix="tfhybrid-timeline-") as directory:
        os.environ["TFHYBRID_TIMELINE"] = directory
        try:
            yield Path(directory)
        finally:
            del os.environ["TFHYBRID_TIMELINE"]


def picture(spans: list[Span]) -> dict[str, object]:
    """Returns three steps of the middle, and each phase's milliseconds per step of all of them."""
    spans = [*spans, *models(spans)]
    begins = steps(spans, rank=0)
    warm = begins[len(begins) // 2 :]  # the first half fills the tables
    first = warm[len(warm) // 2]
    last = warm[len(warm) // 2 + SHOWN]
    shown = [
        {
            **{"rank": span.rank, "phase": span.phase},
            **{"begin": max(span.begin, first) - first, "end": min(span.end, last) - first},
        }
        for span in spans
        if span.begin < last and span.end > first
    ]
    timed = [span for span in spans if warm[0] <= span.begin < warm[-1]]
    count = len(warm) - 1
    by_phase: dict[str, dict[str, float]] = {}
    for span in timed:
        of_rank = by_phase.setdefault(f"rank {span.rank}", {})
        of_rank[span.phase] = of_rank.get(span.phase, 0) + (span.end - span.begin) / count
    step = (warm[-1] - warm[0]) / count
    return {"step_milliseconds": step, "phases": by_phase, "shown": shown} | _fetching(timed)


def _fetching(spans: list[Span]) -> dict[str, float]:
    """Returns the share of the time of passes on their way in which their rank did not wait."""
    under = on_its_way = 0.0
    for rank in {span.rank for span in spans}:
        own = [span for span in spans if span.rank == rank]
        passes = [(span.begin, span.end) for span in own if span.phase == "pass"]
        waits = [(span.begin, span.end) for span in own if span.phase in ("wait", "fetch")]
        total = overlap(passes, passes)
        on_its_way += total
        under += total - overlap(passes, waits)
    return {"share_of_fetching_under_computing": under / on_its_way} if on_its_way else {}


def main() -> None:
    """Runs both jobs, and writes `benchmarks/results/timeline.json`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hosts.timeline", description=__doc__
    )
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    options = ["--steps", str(arguments.steps)]
    found = {}
    with recording() as directory:
        launch.run_side(SIDE, options, ranks=2)
        found["2 ranks"] = picture(read(directory))
    with recording() as directory:
        run_on_hosts(["-m", SIDE, *options, *PASSES], hosts=2, ranks=1, rate="1gbit")
        found["2 hosts, passes of 2 batches"] = picture(read(directory))
    console = Console(highlight=False)
    for name, of in found.items():
        console.print(name, {key: value for key, value in of.items() if key != "shown"})
    launch.write_result("timeline", {"pictures": found})


if __name__ == "__main__":
    main()
