"""What the stream itself bears: trainers that do nothing but add, without TensorFlow."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.stream.stream import site
from tfhybrid.stream import StreamSettings
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.weights.weight_update import WeightUpdate

LOGGER = logging.getLogger(__name__)

ADDING = "benchmarks.stream.stream.adding_trainer"
_BLOCK = 250 * site.RECORD_ROWS  # rows that are made up at a time


def options(parser: argparse.ArgumentParser, samples: int, models: int) -> None:
    """Adds a command's options."""
    parser.add_argument("--samples", type=int, default=samples, help="of all models")
    parser.add_argument("--trainers", type=int, default=2, help="of each model")
    parser.add_argument("--models", type=int, default=models)
    parser.add_argument("--dim", type=int, default=16)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns the rows per second of a backlog that is there when the stream begins."""
    LOGGER.info("%s rows wait in %d queues", f"{chosen.samples:,}", chosen.models)
    trained = train(chosen)
    rate = trained.rows / trained.seconds
    LOGGER.info("%s rows/s", f"{rate:,.0f}")
    return {
        "models": chosen.models,
        "trainers": chosen.trainers * chosen.models,
        "rows": chosen.models * _rows_of_each(chosen.samples, chosen.models),
        "rows_per_second": rate,
    }


def train(chosen: argparse.Namespace, bad_every: int | None = None) -> site.Trained:
    """Trains a backlog.

    Args:
        chosen: Values of `options`.
        bad_every: One row in so many is bad. Default: none is.
    """
    names = [f"model_{number}" for number in range(chosen.models)]
    with site.folder() as folder:
        trainers = {name: _trainer(name, chosen.dim, chosen.trainers) for name in names}
        path = _config(folder, names, trainers, seconds=0.5)
        records = _filled(path, names, chosen.samples, bad_every)
        return site.train(path, records, first=0.05)


def speed_options(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--slower", type=float, default=4.0, help="how many times, one of two")
    parser.add_argument("--rate", type=float, default=60_000.0, help="rows/s of the faster one")
    parser.add_argument("--dim", type=int, default=16)


def measure_speeds(chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns what two trainers, one of them slower, have trained of a backlog."""
    with site.folder() as folder:
        trainers = {
            name: _trainer("model", chosen.dim, 1, "--rate", str(rate))
            for name, rate in (("fast", chosen.rate), ("slow", chosen.rate / chosen.slower))
        }
        path = _config(folder, ["model"], trainers, seconds=0.5)
        records = _filled(path, ["model"], chosen.samples)
        rate = site.rows_per_second(path, records, first=0.05)
        rows = _rows_by_trainer(folder / "models" / "model" / "journal")
    by_name = {name.partition("-")[0]: count for name, count in rows.items()}
    ratio = by_name["fast"] / by_name["slow"]
    LOGGER.info("rows by trainer: %s; %.2f times as many, wanted %g", rows, ratio, chosen.slower)
    return {
        "slower": chosen.slower,
        "rows": by_name,
        "ratio": ratio,
        "rows_per_second": rate,
        "most_rows_per_second": chosen.rate * (1 + 1 / chosen.slower),
    }


def _rows_by_trainer(journal: Path) -> Mapping[str, int]:
    """Returns how many rows each trainer has trained, once all of them have begun."""
    found = []
    queue, offset = LogQueue(journal), 0
    while (piece := queue.read(offset)).next_offset > offset:
        offset = piece.next_offset
        for _, record in piece.records:
            if record.attributes["kind"] == "update":
                found.append(WeightUpdate.from_record(record))
    everyone = {update.trainer for update in found}
    begun = max(next(i for i, u in enumerate(found) if u.trainer == name) for name in everyone)
    rows: Counter[str] = Counter()
    for update in found[begun:]:
        rows[update.trainer] += update.rows
    return rows


def _trainer(model: str, dim: int, count: int, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", ADDING, model, str(dim), *more]
    return {"count": count, "command": command}


def _config(folder: Path, names: list[str], trainers: Mapping[str, Any], seconds: float) -> Path:
    lease, columns = {"seconds": seconds, "max_rows": 65536}, {"item": "int64"}
    return site.write_config(folder, names, columns, lease=lease, trainers=trainers, bad_rows=10**9)


def _rows_of_each(samples: int, models: int) -> int:
    return max(samples // models // site.RECORD_ROWS, 1) * site.RECORD_ROWS


def _filled(
    path: Path, names: list[str], samples: int, bad_every: int | None = None
) -> dict[str, int]:
    """Fills the queue of each model; returns how many records each has."""
    random = np.random.default_rng(1)
    settings = StreamSettings.read(path)
    each = _rows_of_each(samples, len(names))

    def batches(name: str) -> Any:
        for first in range(0, each, _BLOCK):
            items = random.zipf(1.2, min(_BLOCK, each - first)) % 1_000_000
            missing = site.missing(len(items), bad_every)
            arrays = [pa.array(items, mask=missing), pa.array([name] * len(items))]
            yield pa.record_batch(arrays, names=settings.schema.names)

    return {name: site.fill(settings, name, batches(name)) for name in names}
