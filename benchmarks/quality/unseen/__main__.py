"""What a key without a row should read outside of training: one training, three evaluations.

    python -m benchmarks.quality.unseen DATA [--rows N] [--dims 8 64] [--seeds 3] [--sets frappe]

DATA holds frappe_x1/{train,test}.csv, movielens-stream/ratings_by_time.csv and
talkingdata/train_sample.csv. The last fifth of MovieLens and TalkingData, in order of time, is the
test. The three evaluations differ in what keys without a row read: their initial values, zeros, or
the mean of the table's rows, summed in float64 in the order of keys. Every run is written as soon
as it has ended, and a later call with the same `--rows` adds those that are not there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from rich.console import Console
from rich.table import Table
from tensorflow import keras

import tfhybrid
from tfhybrid.metrics.binary import auc

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "unseen.json"
CHOICES = ("initial", "zeros", "mean")
SETS = ("movielens", "frappe", "talkingdata")
_BATCH = 512

Columns = dict[str, np.ndarray]
Samples = tuple[Columns, np.ndarray]


def main() -> None:
    """Runs every set, dim and seed, and prints the loss of each choice to the best one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", type=int, help="newest training samples to use (default all)")
    parser.add_argument("--dims", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... of each")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    arguments = parser.parse_args()

    console = Console()
    host = {"machine": platform.machine(), "cpus": os.cpu_count(), "rows": arguments.rows}
    samples = {name: samples_of(arguments.data, name, arguments.rows) for name in arguments.sets}
    tfhybrid.init()
    runs: list[dict[str, Any]] = []
    if RESULTS.exists() and (kept := json.loads(RESULTS.read_text()))["host"] == host:
        runs = kept["runs"]
    done = {(each["seed"], each["dim"], each["set"]) for each in runs}
    for seed, dim, name in itertools.product(
        range(arguments.seeds), arguments.dims, arguments.sets
    ):
        if (seed, dim, name) in done:
            continue
        runs.append({"set": name, "dim": dim, "seed": seed, **run(*samples[name], dim, seed)})
        console.print(json.dumps(runs[-1]))
        RESULTS.write_text(json.dumps({"host": host, "runs": runs}, indent=2) + "\n")
    console.print(table_of(runs))


def samples_of(data: Path, name: str, rows: int | None) -> tuple[Samples, Samples]:
    """Returns the samples for training and for the test, each in order of time."""
    match name:
        case "frappe":
            train, test = (_read(data / "frappe_x1" / f"{part}.csv") for part in ("train", "test"))
            names = [column for column in train if column != "label"]
            return _newest(train, names, "label", rows), _newest(test, names, "label", None)
        case "movielens":
            every = _read(data / "movielens-stream" / "ratings_by_time.csv")
            every["label"] = every["rating"] >= 4
            names = ["user", "movie"]
        case _:
            every = _read(data / "talkingdata" / "train_sample.csv")
            order = np.argsort(every["click_time"], kind="stable")
            every = {column: values[order] for column, values in every.items()}
            every["label"] = every["is_attributed"]
            names = ["ip", "app", "device", "os", "channel"]
    cut = len(every["label"]) * 4 // 5
    train, test = (
        {column: values[part] for column, values in every.items()}
        for part in (slice(cut), slice(cut, None))
    )
    return _newest(train, names, "label", rows), _newest(test, names, "label", None)


def run(train: Samples, test: Samples, dim: int, seed: int) -> dict[str, Any]:
    """Trains once, and returns the AUC of each choice and the share of keys without rows."""
    features, labels = train
    keras.utils.set_random_seed(seed)
    layers = {
        name: tfhybrid.layers.Embedding(
            tfhybrid.TableConfig(dim), name=f"{name}_{dim}_{seed}_{len(labels)}_{len(features)}"
        )
        for name in features
    }
    tower = keras.Sequential(
        [keras.Input([dim * len(layers)]), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
    )
    inputs = {name: keras.Input([1], dtype="int64", name=name) for name in features}
    vectors = [keras.layers.Flatten()(layers[name](inputs[name])) for name in features]
    model = keras.Model(inputs, tower(keras.layers.Concatenate()(vectors)))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.002)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    model.fit(
        {name: keys[:, np.newaxis] for name, keys in features.items()},
        labels,
        batch_size=_BATCH,
        epochs=2,
        verbose=0,
    )
    read = {name: _vectors(layers[name].table, keys) for name, keys in test[0].items()}
    scores = {}
    for choice in CHOICES:
        embeddings = np.concatenate([each[choice] for each, _ in read.values()], axis=1)
        outputs = tower.predict(embeddings, batch_size=4096, verbose=0)[:, 0]
        scores[choice] = auc(test[1], outputs, np.ones_like(test[1]))
    shares = {name: round(float(missing.mean()), 4) for name, (_, missing) in read.items()}
    return {"auc": scores, "without_row": shares, "positives": int(test[1].sum())}


def table_of(runs: list[dict[str, Any]]) -> Table:
    """Builds a row per set and dim: the mean AUC of each choice, and its loss to the best one."""
    table = Table(title="AUC by what keys without a row read (loss to the best)")
    for column in ("set", "dim", "seeds", *CHOICES):
        table.add_column(column, justify="right")
    worst = dict.fromkeys(CHOICES, 0.0)
    for name, dim in dict.fromkeys((each["set"], each["dim"]) for each in runs):
        same = [each["auc"] for each in runs if (each["set"], each["dim"]) == (name, dim)]
        means = {choice: float(np.mean([each[choice] for each in same])) for choice in CHOICES}
        losses = {choice: max(means.values()) - mean for choice, mean in means.items()}
        worst = {choice: max(worst[choice], losses[choice]) for choice in CHOICES}
        cells = [f"{means[choice]:.4f} ({losses[choice]:.4f})" for choice in CHOICES]
        table.add_row(name, str(dim), str(len(same)), *cells)
    table.add_row("worst loss", "", "", *(f"{worst[choice]:.4f}" for choice in CHOICES))
    return table


def _vectors(
    table: tfhybrid.store.Table, keys: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the embeddings of keys by choice, and which keys have no row."""
    distinct, places = np.unique(keys, return_inverse=True)
    missing = ~np.isin(distinct, table.read(distinct).keys)
    initial = table.lookup(distinct)
    blocks = list(table.blocks())
    all_keys = np.concatenate([block.keys for block in blocks])
    rows = np.concatenate([block.embeddings for block in blocks])[np.argsort(all_keys)]
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    values = {"initial": initial, "zeros": np.zeros_like(mean), "mean": mean}
    read = {
        choice: np.where(missing[:, np.newaxis], value, initial)[places]
        for choice, value in values.items()
    }
    return read, missing[places]


def _read(path: Path) -> Columns:
    table = pyarrow.csv.read_csv(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def _newest(columns: Columns, names: list[str], label: str, rows: int | None) -> Samples:
    begin = 0 if rows is None else max(0, len(columns[label]) - rows)
    keys = {name: columns[name][begin:].astype(np.int64) for name in names}
    return keys, columns[label][begin:].astype(np.float32)


if __name__ == "__main__":
    main()
