"""Online training: samples a second, a backlog, many models, and what fresh weights are worth.

python -m benchmarks.stream throughput [--trainers 2 4] [--rounds 3]
python -m benchmarks.stream backlog [--samples 10000000]
python -m benchmarks.stream models [--models 8]
python -m benchmarks.stream freshness [--seeds 3] [--figure build/freshness.png]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks import launch
from benchmarks.step.workload import Batches, StepConfig, add_options, config_in
from benchmarks.stream import freshness, site
from tfhybrid.stream import StreamSettings

ADDING = "benchmarks.stream.adding_trainer"
STEP = "benchmarks.stream.step_trainer"
PARAMETER_SERVER = "benchmarks.stream.parameter_server"
SYNCHRONOUS = "benchmarks.step.tfhybrid_step"


def main() -> None:
    """Measures, and prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    throughput = commands.add_parser("throughput")
    add_options(throughput)
    throughput.add_argument("--trainers", type=int, nargs="+", default=[2, 4])
    throughput.add_argument("--push", nargs="+", default=["deltas", "gradients"])
    throughput.add_argument("--samples", type=int, default=2_000_000)
    throughput.add_argument("--rounds", type=int, default=3)
    for name, samples in (("backlog", 10_000_000), ("models", 2_000_000)):
        command = commands.add_parser(name)
        command.add_argument("--samples", type=int, default=samples)
        command.add_argument("--trainers", type=int, default=2, help="of each model")
        command.add_argument("--models", type=int, default=8 if name == "models" else 1)
        command.add_argument("--dim", type=int, default=16)
    fresh = commands.add_parser("freshness")
    for name in ("rows", "hours", "batch", "users", "items"):
        fresh.add_argument(f"--{name}", type=int, default=getattr(freshness.Drift, name))
    fresh.add_argument("--seeds", type=int, default=3)
    fresh.add_argument("--figure", type=Path)
    options = parser.parse_args()
    measure = {
        "throughput": measure_throughput,
        "backlog": measure_adding,
        "models": measure_adding,
        "freshness": measure_freshness,
    }
    found = measure[options.command](options)
    Console().print_json(json.dumps({"machine": launch.machine(), **found}))


def measure_throughput(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the median samples per second of all sides, which take turns."""
    config = config_in(options)
    told = [f"--{name}={getattr(config, name)}" for name in vars(config)]
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for trainers in options.trainers:
            synchronous = launch.run_side(SYNCHRONOUS, told, trainers)
            rate = float(str(synchronous["samples_per_second"]))
            found.setdefault(f"synchronous, {trainers} ranks", []).append(rate)
            for push in options.push:
                rate = step_rate(config, trainers, push, told, options.samples)
                found.setdefault(f"stream, {trainers} trainers, {push}", []).append(rate)
        found.setdefault("parameter servers", []).append(parameter_server_rate(told))
    return {name: statistics.median(rates) for name, rates in found.items()}


def step_rate(config: StepConfig, trainers: int, push: str, told: list[str], samples: int) -> float:
    """Returns the samples per second of a stream."""
    names = [f"feature_{position}" for position in range(config.features)]
    columns = {**dict.fromkeys(names, "int64"), "label": "float32"}
    command = [sys.executable, "-m", STEP, *told, "--push", push, "--direct"]
    with site.folder() as folder:
        path = site.write_config(
            folder,
            ["step"],
            columns,
            lease={"seconds": 0.5, "first_rows": config.batch},
            trainers={"trainer": {"count": trainers, "command": command}},
        )
        settings = StreamSettings.read(path)
        records = site.fill(settings, "step", _step_rows(config, settings.schema, samples))
        return site.rows_per_second(path, {"step": records}, first=0.4)


def _step_rows(config: StepConfig, schema: pa.Schema, samples: int) -> Iterator[pa.RecordBatch]:
    config = dataclasses.replace(config, batch=site.RECORD_ROWS)
    for ids, labels in Batches(config, 0, 1).measured(-(-samples // config.batch)):
        model = pa.array(["step"] * ids.shape[1])
        arrays = [*map(pa.array, ids), pa.array(labels[:, 0]), model]
        yield pa.record_batch(arrays, schema=schema)


def parameter_server_rate(told: list[str]) -> float:
    """Returns the samples per second of TensorFlow's parameter servers."""
    run = subprocess.run(
        [sys.executable, "-m", PARAMETER_SERVER, *told],
        cwd=launch.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(str(launch.result_in(run.stdout)["samples_per_second"]))


def measure_adding(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the rows per second of trainers that do nothing but add."""
    names = [f"model_{number}" for number in range(options.models)]
    random = np.random.default_rng(1)
    with site.folder() as folder:
        command = [sys.executable, "-m", ADDING]
        trainers = {
            name: {"count": options.trainers, "command": [*command, name, str(options.dim)]}
            for name in names
        }
        path = site.write_config(
            folder,
            names,
            {"item": "int64"},
            lease={"seconds": 0.5, "most_rows": 65536},
            trainers=trainers,
        )
        settings = StreamSettings.read(path)
        each = options.samples // len(names) // site.RECORD_ROWS * site.RECORD_ROWS
        records = {}
        for name in names:
            items = random.zipf(1.2, each) % 1_000_000
            of_model = pa.array([name] * each)
            batch = pa.record_batch([pa.array(items), of_model], schema=settings.schema)
            records[name] = site.fill(settings, name, iter([batch]))
        rate = site.rows_per_second(path, records, first=0.05)
    return {"models": len(names), "rows": each * len(names), "rows_per_second": rate}


def measure_freshness(options: argparse.Namespace) -> dict[str, Any]:
    """Returns mean and spread of the AUC for each interval, and draws them."""
    choices = freshness.Drift(
        rows=options.rows,
        hours=options.hours,
        batch=options.batch,
        users=options.users,
        items=options.items,
    )
    runs = [freshness.run(choices, seed) for seed in range(options.seeds)]
    found = {
        name: {
            "mean": float(np.mean([run[name] for run in runs])),
            "spread": float(np.ptp([run[name] for run in runs])),
            # Seeds differ in what is best possible, so each is compared with itself.
            "above 5 h": [run[name] - run["5 h"] for run in runs],
        }
        for name in freshness.INTERVALS
    }
    if options.figure is not None:
        draw(found, options.figure)
    return {"freshness": found}


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Writes a picture of what each interval gains over the longest, one dot a seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    names = list(found)
    axes.plot(names, [np.mean(found[name]["above 5 h"]) for name in names], color="#1f6feb")
    for place, name in enumerate(names):
        gains = found[name]["above 5 h"]
        axes.plot([place] * len(gains), gains, "o", color="#1f6feb")
    axes.set(title="What fresh weights are worth", xlabel="time between publications")
    axes.set(ylabel="AUC above that of 5 h")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
