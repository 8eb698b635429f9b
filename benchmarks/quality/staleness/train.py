"""A rank of the benchmark of staleness: DeepFM on Frappe_x1, which data nodes read with this file.

python -m benchmarks.quality.staleness.train --staleness 4 --reads DIRECTORY
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import keras

import tfhybrid
from examples.click_training import Recipe, collections_of, compiled_model
from tfhybrid.data import Batches, Clicks, Shard, from_nodes
from tfhybrid.data.archives import open_frappe

RECIPE = Recipe()
PARTS = ("train", "valid", "test")


@functools.cache
def _splits() -> dict[str, Clicks]:
    return dict(zip(PARTS, open_frappe(), strict=True))


def _batches(shard: Shard, part: str, samples: int, seed: int, batch: int) -> Batches:
    clicks = _splits()[part]
    if samples:
        clicks = clicks.take(range(min(samples, len(clicks))))
    shuffle = part == "train"
    return Batches(clicks, batch // shard.size, seed=seed, shuffle=shuffle, shard=shard)


def frappe(shard: Shard, part: str, samples: int, seed: int, batch: int) -> Any:
    """The batches of a shard: for ever those that are trained. Data nodes call it."""
    epochs = None if part == "train" else 1
    return _batches(shard, part, samples, seed, batch).dataset(epochs=epochs)


class Score(keras.callbacks.Callback):
    """Scores validation samples after each epoch, and test samples whenever those were the best."""

    def __init__(self, data: dict[str, Any], steps: dict[str, int]) -> None:
        super().__init__()
        self._data, self._steps = data, steps
        self.valid, self.test, self.epoch = -1.0, {}, -1
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Starts the clock."""
        self._started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """All ranks decide the same, as their metrics are equal."""
        self.seconds.append(time.perf_counter() - self._started)
        valid = self._scores("valid")["auc"]
        if valid > self.valid:
            self.valid, self.epoch, self.test = valid, epoch, self._scores("test")
        self.model.stop_training = epoch - self.epoch >= RECIPE.patience

    def _scores(self, part: str) -> dict[str, float]:
        return tfhybrid.metrics.evaluate(self.model, self._data[part], self._steps[part])


def missing_in(directory: Path) -> dict[str, int]:
    """Returns how many updates rows lacked, by the logs of all ranks."""
    counts: Counter[int] = Counter()
    for log in directory.glob("reads-*.jsonl"):
        reads = [json.loads(line) for line in log.read_text().splitlines()]
        counts.update(max(read["applied"] - 1 - read["read"], 0) for read in reads)
    every = sorted(counts.elements())
    return {"median": int(statistics.median_low(every)), "most": every[-1]} if every else {}


def main() -> None:
    """Trains with one staleness; rank 0 prints the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=0, help="of each part; 0: all")
    parser.add_argument("--batch", type=int, default=RECIPE.batch_size, help="of all ranks")
    parser.add_argument("--epochs", type=int, default=RECIPE.epochs, help="at most")
    parser.add_argument("--reads", type=Path, required=True, help="directory for logs of reads")
    arguments = parser.parse_args()
    tfhybrid.init(seed=arguments.seed)
    keras.utils.set_random_seed(arguments.seed)
    model = compiled_model(
        list(_splits()["train"].features), dataclasses.replace(RECIPE, seed=arguments.seed)
    )
    layers = collections_of(model)
    shard = Shard.of_this_process()
    told = {"samples": arguments.samples, "seed": arguments.seed, "batch": arguments.batch}
    steps = {part: _batches(shard, part, **told).steps_per_epoch for part in PARTS}
    data = {
        part: from_nodes(frappe, layers, arguments={"part": part, **told}, trains=False)
        for part in PARTS[1:]
    }
    trained = from_nodes(
        frappe,
        layers,
        arguments={"part": "train", **told},
        delivery="push",
        staleness=arguments.staleness,
        read_log=str(arguments.reads),
    )
    score = Score(data, steps)
    model.fit(
        trained,
        epochs=arguments.epochs,
        steps_per_epoch=steps["train"],
        verbose=0,
        callbacks=[
            tfhybrid.callbacks.BroadcastVariables(),
            tfhybrid.callbacks.MetricAverage(),
            score,
        ],
    )
    result = {
        "side": f"staleness {arguments.staleness}",
        "seed": arguments.seed,
        "auc": score.test["auc"],
        "log_loss": score.test["log_loss"],
        "epochs": score.epoch + 1,
        "milliseconds_per_step": 1e3 * statistics.median(score.seconds) / steps["train"],
    }
    first = tfhybrid.rank() == 0
    tfhybrid.distributed.barrier()
    tfhybrid.shutdown()  # writes the last reads
    if first:
        print(json.dumps(result | {"missing": missing_in(arguments.reads)}), flush=True)


if __name__ == "__main__":
    main()
