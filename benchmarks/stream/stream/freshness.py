"""What fresh weights are worth: the AUC of models that are served newer or older weights.

A click log drifts: users and items go, and new ones come. A trainer pushes gradients to a sync unit
in this process, batch by batch. Each batch is predicted, before it is trained, by the weights that
each interval of publication would have served at its event time. A published model is what the sync
unit reads out at that moment.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stream.stream.numbered_update import numbered_update
from tfhybrid.core.native import OptimizerKind
from tfhybrid.data import ClickLog, IdSpace
from tfhybrid.initializers import Uniform
from tfhybrid.metrics import auc
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.sync_unit.target_model import TargetModel
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

INTERVALS = {"5 h": 300, "1 h": 60, "10 min": 10, "1 min": 1}  # minutes
_ADAGRAD = {"kind": OptimizerKind.ADAGRAD, "initial_accumulator_value": 0.1, "epsilon": 1e-7}
_RATE = 0.3
_LONGEST = next(iter(INTERVALS))

LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Drift:
    """The log.

    Args:
        rows: Of it.
        hours: Of event time in which they come.
        users: Alive at a time.
        items: Likewise.
        drift: Part of the ids that is replaced with each row.
        batch: Rows of a step.
        dim: Of an embedding; the last column is a bias.
    """

    rows: int = 400_000
    hours: int = 24
    users: int = 2_000
    items: int = 1_000
    drift: float = 1e-5
    batch: int = 64
    dim: int = 9


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    for name in ("rows", "hours", "batch", "users", "items"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Drift, name))
    parser.add_argument("--seeds", type=int, default=5)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns mean and spread of the AUC for each interval."""
    names = ("rows", "hours", "batch", "users", "items")
    choices = Drift(**{name: getattr(chosen, name) for name in names})
    runs = []
    for seed in range(chosen.seeds):
        runs.append(run(choices, seed))
        told = ", ".join(f"{name}: {auc_of:.4f}" for name, auc_of in runs[-1].items())
        LOGGER.info("seed %d: AUC of %s", seed, told)
    found = {
        name: {
            "mean": float(np.mean([run[name] for run in runs])),
            "spread": float(np.ptp([run[name] for run in runs])),
            # Seeds differ in what is best possible, so each is compared with itself.
            "above the longest": [run[name] - run[_LONGEST] for run in runs],
        }
        for name in INTERVALS
    }
    return {"log": dataclasses.asdict(choices), "seeds": chosen.seeds, "auc": found}


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Writes a picture of what each interval gains over the longest, one dot a seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    gains = [found[name]["above the longest"] for name in found]
    axes.plot(list(found), [np.mean(each) for each in gains], color="#1f6feb")
    for place, each in enumerate(gains):
        axes.plot([place] * len(each), each, "o", color="#1f6feb")
    axes.set(title="What fresh weights are worth", xlabel="time between publications")
    axes.set(ylabel=f"AUC above that of {_LONGEST}")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def run(choices: Drift, seed: int) -> dict[str, float]:
    """Returns the AUC of each interval, over the rows of the last three quarters."""
    log = ClickLog(
        {
            "user": IdSpace(choices.users, drift=choices.drift),
            "item": IdSpace(choices.items, drift=choices.drift),
        },
        seed=seed,
    )
    clicks = log.clicks(0, choices.rows)
    table = TableSpec(choices.dim, Uniform().native, _ADAGRAD, slots=1)
    spec = ModelSpec({"user": table, "item": table}, seed=seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-benchmark-") as memory,
    ):
        model = TargetModel("ads", Path(folder), Path(memory), fsync="never")
        model.open(spec, [])
        model.begin("clicks", QueuePosition(0, 0))
        scores = _progress(model, clicks.features, clicks.label, choices)
        model.close()
    judged = slice(choices.rows // 4, len(next(iter(scores.values()))))
    return {name: auc(clicks.label[judged], found[judged]) for name, found in scores.items()}


def _progress(
    model: TargetModel, features: dict[str, np.ndarray], labels: np.ndarray, choices: Drift
) -> dict[str, np.ndarray]:
    """Trains the rows in order; returns what each interval's model said of each before."""
    known = {name: np.unique(ids) for name, ids in features.items()}
    places = {name: np.searchsorted(known[name], ids) for name, ids in features.items()}
    served: dict[str, dict[str, np.ndarray]] = {}
    number = dict.fromkeys(INTERVALS, -1)
    scores: dict[str, list[np.ndarray]] = {name: [] for name in INTERVALS}
    for step, first in enumerate(range(0, choices.rows, choices.batch)):
        part = slice(first, first + choices.batch)
        minute = first / choices.rows * choices.hours * 60
        for name, minutes in INTERVALS.items():
            if int(minute // minutes) != number[name]:
                number[name] = int(minute // minutes)
                served[name], _ = model.read(known)
            user, item = (served[name][each][places[each][part]] for each in ("user", "item"))
            scores[name].append(_logits(user, item))
        _train(model, {name: ids[part] for name, ids in features.items()}, labels[part], step)
    return {name: np.concatenate(parts) for name, parts in scores.items()}


def _logits(user: np.ndarray, item: np.ndarray) -> np.ndarray:
    return (user[:, :-1] * item[:, :-1]).sum(axis=1) + user[:, -1] + item[:, -1]


def _train(model: TargetModel, ids: dict[str, np.ndarray], labels: np.ndarray, step: int) -> None:
    distinct = {name: np.unique(each, return_inverse=True) for name, each in ids.items()}
    keys = {name: found[0] for name, found in distinct.items()}
    rows, version = model.read(keys)
    user, item = (rows[name][distinct[name][1]] for name in ("user", "item"))
    errors = ((1 / (1 + np.exp(-_logits(user, item))) - labels) / len(labels))[:, None]
    gradients = {}
    for name, other in (("user", item), ("item", user)):
        of_samples = np.concatenate([errors * other[:, :-1], errors], axis=1)
        gradients[name] = np.zeros_like(rows[name])
        np.add.at(gradients[name], distinct[name][1], of_samples)
    model.apply(
        numbered_update(
            *("clicks", step, len(labels), version),
            keys,
            gradients,
            dict.fromkeys(keys, _RATE),
        )
    )
