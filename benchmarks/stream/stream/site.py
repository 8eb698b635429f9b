"""A stream on this machine: its queues are filled, then its processes run until all is trained."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.support.launch import ROOT
from tfhybrid.settings import shm_directory
from tfhybrid.stream import StreamSettings
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.log_queue import LogQueue

RECORD_ROWS = 4096


def write_config(
    folder: Path, models: Sequence[str], columns: Mapping[str, str], **more: Any
) -> Path:
    """Writes `stream.yaml`: a queue for each model, dealt out by the column `model`.

    Args:
        folder: Of all that the stream keeps.
        models: Their names.
        columns: Beside `model`.
        **more: Other fields of `StreamSettings`.
    """
    provider, sync = free_ports(2)
    config = {
        "folder": str(folder),
        "provider": f"127.0.0.1:{provider}",
        "sync": f"127.0.0.1:{sync}",
        "token_file": str(folder / "token"),
        "columns": {**columns, "model": "string"},
        "routes": {
            "columns": ["model"],
            "queues": {name: name for name in models},
            "models": {name: [name] for name in models},
        },
        "save_seconds": 3600.0,
        **more,
    }
    path = folder / "stream.yaml"
    path.write_text(json.dumps(config, indent=1))
    return path


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens at."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def fill(settings: StreamSettings, name: str, batches: Iterator[pa.RecordBatch]) -> int:
    """Writes batches to a queue, before the provider opens it; returns the number of records."""
    with closing(LogQueue(settings.queue_address(name), write=True, fsync="never")) as queue:
        for batch in batches:
            for first in range(0, batch.num_rows, RECORD_ROWS):
                queue.append([rows.encode(batch.slice(first, RECORD_ROWS))])
        return queue.end()


def missing(count: int, every: int | None) -> np.ndarray:
    """Returns which rows lack a value: one in so many; `None` for no row."""
    mask = np.zeros(count, bool)
    if every is not None:
        mask[every // 2 :: every] = True
    return mask


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for a stream, and its stores in shared memory; both are gone afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-benchmark-") as memory,
    ):
        before = shm_directory()
        os.environ["TFHYBRID_SHM_DIR"] = memory
        try:
            yield Path(folder)
        finally:
            os.environ["TFHYBRID_SHM_DIR"] = before


class Trained(NamedTuple):
    """What a stream trained from one moment to another.

    Args:
        rows: Of all models.
        seconds: Between the two moments.
        processor_seconds: Of all its processes.
    """

    rows: int
    seconds: float
    processor_seconds: float


def rows_per_second(config: Path, records: Mapping[str, int], first: float) -> float:
    """Returns the rows that are trained in a second, of all models; see `train`."""
    trained = train(config, records, first)
    return trained.rows / trained.seconds


def train(config: Path, records: Mapping[str, int], first: float) -> Trained:
    """Runs a stream until all is trained.

    Args:
        config: `stream.yaml`, with trainers.
        records: In the queue of each model, of `RECORD_ROWS` rows.
        first: Part of the records after which the clock starts: by then all trainers train.

    """
    command = [sys.executable, "-m", "tfhybrid.cli", "stream", "run", str(config)]
    settings = StreamSettings.read(config)
    log = (config.parent / "run.log").open("w")
    process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        while not Path(settings.token_file).exists():
            time.sleep(0.05)
        models = {name: settings.remote_model(name, "benchmark") for name in records}
        every = sum(records.values())
        started, at, used = None, 0, 0.0
        while True:
            standing = [(name, each.standing()) for name, each in models.items()]
            done = sum(found[name][0].offset for name, found in standing if name in found)
            now = time.perf_counter()
            if started is None and done >= first * every:
                started, at, used = now, done, _processor_seconds(process.pid)
            if started == now and done == every:
                raise RuntimeError("All rows were trained between two looks: take more --samples")
            if started is not None and done == every:
                used = _processor_seconds(process.pid) - used
                return Trained((done - at) * RECORD_ROWS, now - started, used)
            if process.poll() is not None:
                raise RuntimeError((config.parent / "run.log").read_text()[-2000:])
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        log.close()


def _processor_seconds(process: int) -> float:
    """Returns the processor time of a process and of those that it has started."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    children = [
        int(child)
        for file in Path(f"/proc/{process}/task").glob("*/children")
        for child in file.read_text().split()
    ]
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(_processor_seconds, children))
