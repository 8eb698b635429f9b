"""A model whose table forgets, its data, and its training step by step."""

from __future__ import annotations

import keras
import numpy as np

import tfhybrid
from tests.reference import click_model, forgetting, training

LENGTH, DIM, SAMPLES = 3, 4, 8
# Each rule alone, and in how many updates it examines every key.
EVICTIONS = {
    "unseen_steps": {"unseen_steps": 4, "every": 2},
    "unseen_time": {"unseen_time": 25, "every": 1},
    "frequency": {"min_frequency": 0.6, "half_life": 3, "every": 2},
    "norm": {"min_norm": 0.45, "every": 1},
    "recent": {"max_rows": 24, "keep": "recent", "every": 2},
    "frequent": {"max_rows": 24, "keep": "frequent", "half_life": 8, "every": 1},
}
ADMISSIONS = {"admitted at once": None, "admitted": tfhybrid.Admission(2, forget_after=5)}
RATE = 0.2


class ForgettingJob:
    """A model whose features share a table, or whose only feature has it alone.

    Args:
        admission: Name of one of `ADMISSIONS`.
        eviction: Name of one of `EVICTIONS`, or `None`.
        shared: Whether two features share the table.
        sync: Of `DistributedOptimizer`.
    """

    def __init__(
        self,
        admission: str,
        eviction: str | None,
        *,
        shared: bool = False,
        sync: str | None = None,
    ) -> None:
        rules = None if eviction is None else tfhybrid.Eviction(**EVICTIONS[eviction])
        config = tfhybrid.TableConfig(
            DIM, click_model.WIDE, admission=ADMISSIONS[admission], eviction=rules
        )
        self.features = ["clicked", "carted"] if shared else ["item"]
        layer = tfhybrid.layers.EmbeddingCollection(
            {"item": config}, shared={"item": self.features} if shared else None
        )
        inputs = {name: keras.Input((LENGTH,), dtype="int64", name=name) for name in self.features}
        embedded = layer(inputs)
        flat = [keras.layers.Flatten()(embedded[name]) for name in self.features]
        x = keras.layers.Concatenate()(flat) if shared else flat[0]
        initializer = keras.initializers.GlorotUniform(3)
        self.model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer=initializer)(x))
        self.clock = tfhybrid.layers.EventClock()
        optimizer = tfhybrid.DistributedOptimizer(
            keras.optimizers.Adagrad(RATE), event_clock=self.clock, sync=sync
        )
        self.model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
        self.table = layer.tables["item"]

    def reference(self) -> training.Trainer:
        """Returns the reference of the model, which was not trained yet."""
        table = forgetting.Table("item", self.table.config, training.Adagrad(RATE))
        return training.Trainer(
            [(name, "item") for name in self.features],
            {"item": table},
            click_model.dense_weights(self.model),
            training.Adagrad(RATE),
        )

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

    def digests(self) -> list[int]:
        """Returns the digests of the table and of what waits for it, histories included."""
        tables = [self.table] if self.table.waiting is None else [self.table, self.table.waiting]
        return [table.digest() for table in tables]
