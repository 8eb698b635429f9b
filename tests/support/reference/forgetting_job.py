"""A model with a table for each way to forget, its data, and its training step by step."""

from __future__ import annotations

import itertools

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model, forgetting, training
from tfhybrid.config.placement import REPLICATED, Placement

LENGTH, DIM, SAMPLES = 3, 4, 8
RATE = 0.2
ADMISSIONS = {"at once": None, "after 2": tfhybrid.Admission(2, forget_after=5)}
# Each rule alone.
EVICTIONS = {
    "unseen steps": tfhybrid.Eviction(unseen_steps=4, every_steps=2),
    "unseen time": tfhybrid.Eviction(unseen_time=25, every_steps=1),
    "frequency": tfhybrid.Eviction(min_frequency=0.6, half_life=3, every_steps=2),
    "norm": tfhybrid.Eviction(min_norm=0.45, every_steps=1),
    "recent": tfhybrid.Eviction(max_rows=24, every_steps=2),
    "frequent": tfhybrid.Eviction(max_rows=24, keep="frequent", half_life=8, every_steps=1),
}
# Names of tables, one per combination.
CELLS = [f"{admission}, {eviction}" for admission in ADMISSIONS for eviction in EVICTIONS]


class ForgettingJob:
    """A model whose tables forget.

    Args:
        shared: Whether two features share each table, or one has it alone.
        exchange: Of `DistributedOptimizer`.
        dense: Of `DistributedOptimizer`.
        placement: Of the tables.
        limited: Whether tables with a largest number of rows, which each owner has for itself, are
            among them.
        by_norm: Whether tables that evict by norm are among them, as those in files may not.
        storage: Of the tables.
    """

    def __init__(
        self,
        *,
        shared: bool = False,
        exchange: str = "leaders",
        dense: str = "horovod",
        placement: Placement = REPLICATED,
        limited: bool = True,
        by_norm: bool = True,
        storage: tfhybrid.FileTier | None = None,
    ) -> None:
        self.features = ["clicked", "carted"] if shared else ["item"]
        pairs = itertools.product(ADMISSIONS.values(), EVICTIONS.values())
        self.configs = {
            cell: tfhybrid.TableConfig(
                DIM,
                click_model.WIDE,
                admission=a,
                eviction=e,
                placement=placement,
                storage=storage,
            )
            for cell, (a, e) in zip(CELLS, pairs, strict=True)
            if (limited or e.max_rows is None) and (by_norm or e.min_norm is None)
        }
        sharers = {cell: [f"{cell}, {name}" for name in self.features] for cell in self.configs}
        layer = tfhybrid.layers.EmbeddingCollection(self.configs, shared=sharers)
        inputs = {name: keras.Input((LENGTH,), dtype="int64", name=name) for name in self.features}
        keys = {f"{cell}, {name}": inputs[name] for cell in self.configs for name in self.features}
        flat = [keras.layers.Flatten()(embedded) for embedded in layer(keys).values()]
        initializer = keras.initializers.GlorotUniform(3)
        logit = keras.layers.Dense(1, kernel_initializer=initializer)
        self.model = keras.Model(inputs, logit(keras.layers.Concatenate()(flat)))
        self.clock = tfhybrid.layers.EventClock()
        optimizer = tfhybrid.DistributedOptimizer(
            keras.optimizers.Adagrad(RATE), event_clock=self.clock, exchange=exchange, dense=dense
        )
        self.model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
        self.tables = layer.tables

    def reference(self) -> training.Trainer:
        """Returns the reference of the model, which was not trained yet."""
        tables = {
            cell: forgetting.Table(cell, config, training.Adagrad(RATE))
            for cell, config in self.configs.items()
        }
        fields = [(name, cell) for cell in self.configs for name in self.features]
        weights = click_model.dense_weights(self.model)
        return training.Trainer(fields, tables, weights, training.Adagrad(RATE))

    def batch(self, step: int, rank: int) -> training.Batch:
        """Returns a rank's batch: keys come, are seen for a while, and stay away."""
        rng = np.random.default_rng([step, rank])
        keys = {
            name: rng.integers(3 * step - 20, 3 * step + 4, (SAMPLES, LENGTH))
            for name in self.features
        }
        keys[self.features[0]][0] = [click_model.INT64.min, click_model.INT64.max, 0]
        return keys, rng.integers(0, 2, SAMPLES).astype(np.float32)

    @staticmethod
    def time(step: int) -> int:
        """Returns the latest event time of a step over all ranks, of whom one alone has it."""
        return 7 * step - 100

    def train(self, first: int, end: int) -> None:
        """Does the steps `[first, end)`."""
        for step in range(first, end):
            keys, labels = self.batch(step, tfhybrid.rank())
            if tfhybrid.rank() == step % tfhybrid.size():
                self.clock.advance(self.time(step))
            self.model.train_on_batch(keys, labels)

    def digests(self) -> dict[str, list[int]]:
        """Returns the digests of each table and of what waits for it, histories included."""
        return {
            cell: [each.digest() for each in (table, table.waiting) if each is not None]
            for cell, table in self.tables.items()
        }
