"""A run of a job that resumes from memory; a process can play the killed run and the next one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import dropout
from tests.support.reference import click_model
from tfhybrid import checkpoint
from tfhybrid.job import job as job_module

STEPS = 12
BATCHES = click_model.batches(STEPS, 1)


class Run:
    """A run of the job, up to its first step."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        seed: int = 0,
        optimizer: Callable[[], keras.optimizers.Optimizer] | None = None,
        reduction: str = "frequency",
        table_optimizer: str | None = None,
        units: int = 4,
        passes: int = 1,
        update: str = "batch",
    ) -> None:
        keras.backend.clear_session()
        tfhybrid.init(name, seed=seed, resume="memory")
        base = click_model.keras_model(optimizer=table_optimizer)
        x = keras.layers.BatchNormalization()(base.layers[-2].output)
        x = dropout(0.2, seed=3)(x)
        x = keras.layers.Dense(units, kernel_initializer=keras.initializers.GlorotUniform(5))(x)
        x = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(6))(x)
        self.model = keras.Model(base.inputs, x)
        make = optimizer or (lambda: keras.optimizers.Adam(0.01))
        self.model.compile(
            tfhybrid.DistributedOptimizer(
                make(), reduction=reduction, backward_passes_per_step=passes, update=update
            ),
            keras.losses.BinaryCrossentropy(from_logits=True),
        )
        self.position = checkpoint.restore(self.model, directory)

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            keys, labels = BATCHES[step][0]
            self.model.train_on_batch(keys, labels)

    def train_in_passes(self, first: int, last: int, end: int) -> None:
        """Trains batches of data that go on to `end`, in passes of three."""
        data = tfhybrid.data.announce(
            [BATCHES[step][0] for step in range(first, end)],
            3,
            click_model.collection(self.model),
            optimizer=self.model.optimizer,
        )
        for keys, labels in itertools.islice(data, last - first):
            self.model.train_on_batch(keys, labels)

    @property
    def digests(self) -> dict[str, object]:
        tables = {n: t.digest() for n, t in checkpoint.dense.tables_of(self.model).items()}
        variables = checkpoint.dense.variables_of(self.model)
        return tables | {"dense": [np.asarray(v).tobytes() for v in variables]}


def crash() -> None:
    """Leaves the store as a killed process does."""
    job_module._end(failed=True)
