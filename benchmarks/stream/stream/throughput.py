"""Samples a second of the 26-feature step: streams, synchronous training, parameter servers."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import logging
import statistics
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from benchmarks.step.step.workload import Batches, StepConfig, add_options, config_in
from benchmarks.stream.stream import site
from benchmarks.support import launch
from tfhybrid.stream import StreamSettings

LOGGER = logging.getLogger(__name__)

STEP = "benchmarks.stream.stream.step_trainer"
PARAMETER_SERVER = "benchmarks.stream.stream.parameter_server"
SYNCHRONOUS = "benchmarks.step.step.tfhybrid_step"
SERVERS = "parameter servers, 2 workers"


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_options(parser)
    parser.add_argument("--trainers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--push", nargs="+", default=["deltas", "gradients"])
    parser.add_argument("--samples", type=int, default=2_000_000, help="in the queue of a stream")
    parser.add_argument("--lease", type=float, default=2.0, help="seconds of a lease of deltas")
    parser.add_argument("--rounds", type=int, default=3)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns the median samples per second of all sides, which take turns."""
    config = config_in(chosen)
    told = [f"--{name}={getattr(config, name)}" for name in vars(config)]
    found: dict[str, list[float]] = {}

    def note(side: str, rate: float) -> None:
        found.setdefault(side, []).append(rate)
        LOGGER.info("round %d: %s: %s samples/s", len(found[side]), side, f"{rate:,.0f}")

    for _ in range(chosen.rounds):
        for trainers in chosen.trainers:
            synchronous = launch.run_side(SYNCHRONOUS, told, trainers)
            note(f"synchronous, {trainers} ranks", float(str(synchronous["samples_per_second"])))
            for push in chosen.push:
                rate = stream_rate(config, trainers, push, chosen)
                note(f"stream, {trainers} trainers, {push}", rate)
        note(SERVERS, parameter_server_rate(told))
    medians = {side: statistics.median(rates) for side, rates in found.items()}
    return {
        "setting": dataclasses.asdict(config),
        "samples_per_second": found,
        "median": medians,
        "times the parameter servers": {
            side: rate / medians[SERVERS] for side, rate in medians.items()
        },
    }


def stream_rate(config: StepConfig, trainers: int, push: str, chosen: argparse.Namespace) -> float:
    """Returns the samples per second of a stream."""
    trained = train(config, trainers, push, chosen)
    return trained.rows / trained.seconds


def train(
    config: StepConfig,
    trainers: int,
    push: str,
    chosen: argparse.Namespace,
    bad_every: int | None = None,
) -> site.Trained:
    """Trains a stream.

    Args:
        config: The step.
        trainers: How many.
        push: `deltas` or `gradients`.
        chosen: Values of `options`.
        bad_every: One row in so many is bad. Default: none is.
    """
    names = [f"feature_{position}" for position in range(config.features)]
    columns = {**dict.fromkeys(names, "int64"), "label": "float32"}
    told = [f"--{name}={getattr(config, name)}" for name in vars(config)]
    command = [sys.executable, "-m", STEP, *told, "--push", push, "--direct"]
    with site.folder() as folder:
        path = site.write_config(
            folder,
            ["step"],
            columns,
            lease={"seconds": chosen.lease, "first_rows": config.batch},
            trainers={"trainer": {"count": trainers, "command": command}},
            bad_rows=10**9,
        )
        settings = StreamSettings.read(path)
        rows = _step_rows(config, settings.schema, chosen.samples, bad_every)
        return site.train(path, {"step": site.fill(settings, "step", rows)}, first=0.4)


def _step_rows(
    config: StepConfig, schema: pa.Schema, samples: int, bad_every: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields rows that meet every row of every table, as on the other sides, then the workload."""
    config = dataclasses.replace(config, batch=site.RECORD_ROWS)
    batches = Batches(config, 0, 1)
    measured = batches.measured(-(-samples // config.batch))
    for ids, labels in itertools.chain(batches.fill(), measured):
        model = pa.array(["step"] * ids.shape[1])
        missing = site.missing(ids.shape[1], bad_every)
        arrays = [*map(pa.array, ids), pa.array(labels[:, 0], mask=missing), model]
        yield pa.record_batch(arrays, names=schema.names)


def parameter_server_rate(told: list[str]) -> float:
    """Returns the samples per second of TensorFlow's parameter servers."""
    return float(str(launch.run_alone(PARAMETER_SERVER, told)["samples_per_second"]))
