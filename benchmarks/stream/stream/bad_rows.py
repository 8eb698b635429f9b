"""A stream of which a few rows are bad, by turns with one of which none is."""

from __future__ import annotations

import argparse
import logging
import statistics
from typing import Any

from benchmarks.step.step.workload import add_options, config_in
from benchmarks.stream.stream import load, throughput

LOGGER = logging.getLogger(__name__)

SIDES = ("clean", "bad")


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_options(parser)
    parser.add_argument("--samples", type=int, default=2_000_000, help="in the queue of a stream")
    parser.add_argument("--lease", type=float, default=2.0, help="seconds of a lease")
    parser.add_argument("--backlog", action="store_true", help="trainers only add, as in `backlog`")
    parser.set_defaults(trainers=2, models=1, dim=16)
    parser.add_argument("--every", type=int, default=1000, help="one row in so many is bad")
    parser.add_argument("--rounds", type=int, default=5)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns rows per second, and per second of processor time, of both sides."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    processor: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(chosen.rounds):
        for side in SIDES:
            bad_every = chosen.every if side == "bad" else None
            if chosen.backlog:
                trained = load.train(chosen, bad_every)
            else:
                config = config_in(chosen)
                trained = throughput.train(config, chosen.trainers, "deltas", chosen, bad_every)
            seconds[side].append(trained.rows / trained.seconds)
            processor[side].append(trained.rows / trained.processor_seconds)
            LOGGER.info(
                "round %d: %s: %s rows/s, %s per second of processor time",
                *(number + 1, side, f"{seconds[side][-1]:,.0f}", f"{processor[side][-1]:,.0f}"),
            )
    parts = {
        name: statistics.median(rates["bad"]) / statistics.median(rates["clean"])
        for name, rates in (("seconds", seconds), ("processor_seconds", processor))
    }
    LOGGER.info("with bad rows, of the clean stream: %s", parts)
    return {
        "one bad row in": chosen.every,
        "rows_per_second": seconds,
        "rows_per_processor_second": processor,
        "part of the clean stream": parts,
    }
