"""A job of one rank on a disk that is watched (disk_calls.c), or fails; started with it preloaded.

    saving_job.py FOLDER

FOLDER/saved gets checkpoints, FOLDER/journal-N what was done to it by the N-th save, and
FOLDER/result.json the calls that were let fail, and after each of them what there was.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.unit.disk.watched_disk import watched
from tfhybrid.checkpoint import CheckpointManager, dense, steps
from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of
from tfhybrid.data import Position
from tfhybrid.errors import CheckpointError

SAVES = 5


class Job:
    """A model with two tables, and what is done with it.

    Args:
        directory: Of its checkpoints.
        max_to_keep: As of `CheckpointManager`.
    """

    def __init__(self, directory: Path, max_to_keep: int) -> None:
        tfhybrid.init()
        keras.utils.set_random_seed(1)
        table = tfhybrid.TableConfig(dim=2)
        inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in ("user", "item")}
        layer = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(inputs, table))
        flat = keras.layers.Concatenate()([*layer(inputs).values()])
        self.model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(flat)))
        self.model.compile(tfhybrid.DistributedOptimizer("adam"), "mse")
        self.directory = directory
        self.manager = CheckpointManager(
            self.model, directory, max_to_keep=max_to_keep, background=False, full_every_saves=2
        )

    def step(self) -> None:
        """Trains on a few keys, some of them new."""
        first = int(self.model.optimizer.iterations)
        keys = np.arange(first, first + 4)[:, np.newaxis]
        self.model.train_on_batch({"user": keys, "item": -keys}, np.ones((4, 1), np.float32))

    def state(self) -> list[object]:
        """Returns what a restore may change."""
        tables = dense.saved_tables_of(self.model).values()
        weights = [np.asarray(v).tolist() for v in dense.variables_of(self.model)]
        return [[table.digest() for table in tables], [table.version for table in tables], weights]


def sound_steps(directory: Path) -> list[int]:
    """Returns the steps that there are; all of them are whole, with what they add to."""
    found = steps(directory)
    for step in found:
        StoredCheckpoint.open(folder_of(directory, step)).check()
    return found


def failing_saves(directory: Path) -> list[dict]:
    """Saves again and again, and lets another call fail each time."""
    job, found = Job(directory, max_to_keep=2), []
    job.step()
    job.manager.save(Position(0, 0))
    for failing in range(1, 10_000):
        job.step()
        before, error, made = sound_steps(directory)[-1], "", failing
        try:
            made = watched(directory, lambda: job.manager.save(Position(0, 0)), failing)
        except CheckpointError as raised:
            error = str(raised)
        after = sound_steps(directory)
        step = int(job.model.optimizer.iterations)
        found.append({"error": error, "before": before, "after": after, "step": step})
        if made < failing:
            break
    tfhybrid.shutdown()
    return found


def failing_restores(directory: Path) -> list[dict]:
    """Restores a delta again and again, and lets another call fail each time."""
    job, found = Job(directory, max_to_keep=9), []
    for _ in range(2):
        job.step()
        job.manager.save(Position(0, 0))
    saved = job.state()
    for failing in range(1, 10_000):
        job.step()
        before, error, made = job.state(), "", failing
        try:
            made = watched(directory, job.manager.restore, failing)
        except CheckpointError as raised:
            error = str(raised)
        same = job.state() == (before if error else saved)
        found.append({"error": error, "same": same})
        if made < failing:
            break
    tfhybrid.shutdown()
    return found


def recorded_saves(folder: Path) -> None:
    """Saves whole checkpoints and deltas, prunes, and replaces one."""
    directory = folder / "saved"
    job = Job(directory, max_to_keep=1)
    for number in range(SAVES):
        if number < SAVES - 1:  # the last one is of the step before
            job.step()
        journal = str(folder / f"journal-{number}")
        save = partial(job.manager.save, Position(number, 0))
        watched(directory, save, journal=journal)
    tfhybrid.shutdown()


if __name__ == "__main__":
    root = Path(sys.argv[1])
    (root / "saved").mkdir()
    recorded_saves(root)
    result = {
        "saves": failing_saves(root / "failing-saves"),
        "restores": failing_restores(root / "failing-restores"),
    }
    (root / "result.json").write_text(json.dumps(result))
