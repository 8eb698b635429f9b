"""Trains on MovieLens's ratings as they come, and draws how well each was predicted before.

    python examples/online.py                         # as fast as it goes
    python examples/online.py --rate 2000 --trainers 3 --push gradients

Without MovieLens it generates a click log whose users and items are replaced over time. Sync unit,
provider and trainers are processes of this machine, `tfhybrid stream run`; the queue is a
directory. Every row is predicted before it is trained, so the AUC is that of rows not seen before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from tfhybrid.data import ClickLog, Clicks, IdSpace
from tfhybrid.data.archives import open_movielens_stream
from tfhybrid.errors import DataError
from tfhybrid.metrics import auc

TFHYBRID = (sys.executable, "-m", "tfhybrid.cli")
TRAINER = Path(__file__).with_name("online_trainer.py")
WINDOWS = 20


class Source(NamedTuple):
    """Samples in order of time."""

    title: str
    clicks: Clicks


def main() -> None:
    """Runs the stream until all rows are trained, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="of the log")
    parser.add_argument("--rate", type=float, help="rows a second; by default as many as go")
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--push", default="deltas", choices=("deltas", "gradients"))
    parser.add_argument("--output", type=Path, default=Path("online-output"))
    arguments = parser.parse_args()

    console = Console()
    source = open_source(arguments.rows)
    output = arguments.output.resolve()
    output.mkdir(parents=True)
    console.print(f"{source.title}: {len(source.clicks):,} rows; logs: {output}/stream/processes")
    curve = replay(source.clicks, output, arguments, console)
    draw(curve, source.title, output / "progressive_auc.png")
    console.print(f"AUC of the first rows {curve[0][1]:.4f}, of the last {curve[-1][1]:.4f}")
    console.print(f"progressive AUC: {output / 'progressive_auc.png'}")


def replay(
    clicks: Clicks, output: Path, arguments: argparse.Namespace, console: Console
) -> list[tuple[float, float]]:
    """Has all rows trained, and returns the progressive AUC over time."""
    log = write_log(clicks, output / "clicks.jsonl")
    config = write_config(output, arguments.trainers, arguments.push)
    with running(config, output):
        feed = [*TFHYBRID, "stream", "feed", str(config), str(log), "--rows", "100"]
        if arguments.rate is not None:
            feed += ["--rate", str(arguments.rate)]
        feeding = subprocess.Popen(feed, stdout=subprocess.DEVNULL)
        trained = 0
        while trained < len(clicks):
            time.sleep(0.5)
            trained = len(read_predictions(output)[0])
            console.print(f"{trained:,} rows trained", end="\r")
        feeding.wait()
    return progressive_auc(*read_predictions(output), windows=WINDOWS)


def open_source(rows: int) -> Source:
    """Returns MovieLens's ratings where they are, else a generated log with drift."""
    try:
        clicks = open_movielens_stream()
        return Source("MovieLens, rated 4 or more", clicks.take(range(min(rows, len(clicks)))))
    except DataError:
        log = ClickLog(
            {"user": IdSpace(1_000, drift=1e-5), "item": IdSpace(500, drift=1e-5)}, seed=1
        )
        return Source("Generated click log with drift", log.clicks(0, rows))


def write_log(clicks: Clicks, path: Path) -> Path:
    """Writes rows as lines of JSON; a row's time is its number."""
    items = clicks.features["item" if "item" in clicks.features else "movie"]
    with path.open("w") as file:
        for row, (user, item, label) in enumerate(
            zip(
                clicks.features["user"].tolist(), items.tolist(), clicks.label.tolist(), strict=True
            )
        ):
            line = {"time": row, "user": user, "item": item, "label": label, "medium": "video"}
            file.write(json.dumps(line) + "\n")
    return path


def write_config(output: Path, trainers: int, push: str) -> Path:
    """Writes `stream.yaml`, which is JSON too."""
    provider, sync = free_ports(2)
    config = {
        "folder": str(output / "stream"),
        "provider": f"127.0.0.1:{provider}",
        "sync": f"127.0.0.1:{sync}",
        "token_file": str(output / "token"),
        "columns": {
            **dict.fromkeys(("time", "user", "item"), "int64"),
            "label": "float32",
            "medium": "string",
        },
        "routes": {
            "columns": ["medium"],
            "queues": {"video": "video"},
            "models": {"clicks": ["video"]},
        },
        "lease": {"rows": 256},  # at most so many rows are trained without what others have learnt
        "trainers": {
            "trainer": {
                "count": trainers,
                "command": [sys.executable, str(TRAINER), push, str(output)],
            }
        },
    }
    path = output / "stream.yaml"
    path.write_text(json.dumps(config, indent=2))
    return path


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens at."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def running(config: Path, output: Path) -> Iterator[None]:
    """Has all processes of the stream running meanwhile."""
    with (output / "run.log").open("w") as log:
        run = [*TFHYBRID, "stream", "run", str(config)]
        process = subprocess.Popen(run, stdout=log, stderr=log)
        try:
            while not (output / "token").exists():
                time.sleep(0.05)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def read_predictions(output: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns times, labels and predictions of all trainers."""
    lines = [
        json.loads(line)
        for path in output.glob("trainer-*.jsonl")
        for line in path.read_text().splitlines()[: path.read_text().count("\n")]
    ]
    names = ("time", "label", "prediction")
    columns = ([value for line in lines for value in line[name]] for name in names)
    times, labels, predictions = map(np.array, columns)
    return times, labels, predictions


def progressive_auc(
    times: np.ndarray, labels: np.ndarray, predictions: np.ndarray, *, windows: int
) -> list[tuple[float, float]]:
    """Returns the time and the AUC of each of some windows of as many rows."""
    order = np.argsort(times, kind="stable")
    return [
        (float(times[part].mean()), float(auc(labels[part], predictions[part])))
        for part in np.array_split(order, windows)
    ]


def draw(curve: list[tuple[float, float]], title: str, path: Path) -> None:
    """Writes a picture of the AUC over time."""
    from matplotlib.figure import Figure  # which tests do without

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*curve, strict=True), "o-", color="#1f6feb")
    axes.set(title=title, xlabel="rows that came", ylabel="AUC of rows before they are trained")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
