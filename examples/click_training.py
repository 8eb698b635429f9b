"""Trains DeepFM on samples with a validation and a test set: what the demo and benchmarks share.

Early stopping uses a score of the validation samples of all ranks, by default the AUC; the test set
is scored at the epoch with the best score.
"""

from __future__ import annotations

import dataclasses
import operator
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras

import tfhybrid
from tfhybrid.data import Batches, Clicks

EVALUATION_BATCH = 4096


class Splits(NamedTuple):
    """Samples to train on, to stop by and to judge by."""

    train: Clicks
    valid: Clicks
    test: Clicks


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is trained, and how.

    Args:
        dim: Size of the embeddings.
        hidden: Units of the deep network's layers.
        dropout: Fraction of the deep network's activations dropped in training.
        dense_rate: Adam's learning rate for the dense weights.
        table_rate: Adam's learning rate for the tables.
        table_epsilon: Adam's epsilon for the tables. With a small one lazy Adam moves a rare key as
            far as a frequent one, and the model learns its samples by heart.
        batch_size: Samples per step of all ranks together.
        epochs: At most so many.
        patience: Epochs without a better validation AUC after which training ends.
        seed: Seed of the initial values, the order of the samples and dropout.
        wire_dtype: Of sparse gradients between hosts.
        pass_batches: Batches of a pass, which make one update together. The tables are sharded
            then. With 0 each batch is an update, and nothing is announced.
    """

    dim: int = 16
    hidden: tuple[int, ...] = (200, 200)
    dropout: float = 0.4
    dense_rate: float = 3e-3
    table_rate: float = 0.2
    table_epsilon: float = 1e-3
    batch_size: int = 4096
    epochs: int = 13
    patience: int = 2
    seed: int = 0
    wire_dtype: str = "float32"
    pass_batches: int = 0


class Point(NamedTuple):
    """One epoch of the learning curve: means over all ranks."""

    step: int
    train_loss: float
    valid_auc: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a training.

    Attributes:
        auc: On the test set, at the epoch with the best validation AUC.
        log_loss: Likewise.
        curve: A point per epoch.
        samples_per_second: Of all ranks while training, validation left out; the median epoch.
        tables: Rows and bytes of each table.
    """

    auc: float
    log_loss: float
    curve: list[Point]
    samples_per_second: float
    tables: dict[str, Any]


def train(
    splits: Splits, recipe: Recipe, callbacks: Sequence[keras.callbacks.Callback] = ()
) -> Outcome:
    """Trains on this rank's share of the samples; every rank calls it alike."""
    keras.utils.set_random_seed(recipe.seed)
    model = compiled_model(list(splits.train.features), recipe)
    batches = Batches(splits.train, recipe.batch_size // tfhybrid.size(), seed=recipe.seed)
    data = batches.dataset(epochs=None)
    if recipe.pass_batches:
        data = tfhybrid.data.announce(
            data, recipe.pass_batches, collections_of(model), optimizer=model.optimizer
        )
    judge = Judge(splits, patience=recipe.patience)
    model.fit(
        data,
        epochs=recipe.epochs,
        steps_per_epoch=batches.steps_per_epoch,
        shuffle=False,  # the batches come shuffled
        verbose=0,
        callbacks=[
            tfhybrid.callbacks.BroadcastVariables(),
            tfhybrid.callbacks.MetricAverage(),
            judge,
            *callbacks,
        ],
    )
    return Outcome(
        auc=judge.test["auc"],
        log_loss=judge.test["log_loss"],
        curve=judge.curve,
        samples_per_second=len(splits.train) / statistics.median(judge.seconds),
        tables=table_stats(model),
    )


def compiled_model(features: Sequence[str], recipe: Recipe) -> keras.Model:
    """Builds DeepFM with Adam on both sides."""
    adam = tfhybrid.optimizers.Adam(recipe.table_rate, epsilon=recipe.table_epsilon)
    model = tfhybrid.models.deepfm(
        features,
        table=tfhybrid.TableConfig(
            dim=recipe.dim,
            optimizer=adam,
            placement=tfhybrid.Sharded() if recipe.pass_batches else tfhybrid.Replicated(),
        ),
        hidden=recipe.hidden,
        dropout=recipe.dropout,
    )
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(
            keras.optimizers.Adam(recipe.dense_rate),
            wire_dtype=recipe.wire_dtype,
            update="pass" if recipe.pass_batches else "batch",
        ),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


def collections_of(model: keras.Model) -> list[tfhybrid.layers.EmbeddingCollection]:
    """Returns the collections of embeddings of a model."""
    return [
        layer for layer in model.layers if isinstance(layer, tfhybrid.layers.EmbeddingCollection)
    ]


def table_stats(model: keras.Model) -> dict[str, Any]:
    """Returns the `TableStats` of every table of a model, by name."""
    return {
        name: table.stats()
        for layer in collections_of(model)
        for name, table in layer.tables.items()
    }


class Judge(keras.callbacks.Callback):
    """Scores the validation set after each epoch, and the test set whenever that was the best.

    Args:
        splits: The samples.
        patience: Training ends after this many epochs without a better validation score.
        min_delta: The least improvement of a score that counts as better.
        criterion: Computes the score from the metrics of the validation set; more is better. By
            default it is the AUC.

    Attributes:
        valid: Metrics of the validation set at the epoch with the best score.
        test: Metrics of the test set at that epoch.
        curve: A point per epoch.
        seconds: Of each epoch, validation left out.
    """

    def __init__(
        self,
        splits: Splits,
        patience: int,
        min_delta: float = 0.0,
        criterion: Callable[[dict[str, float]], float] = operator.itemgetter("auc"),
    ) -> None:
        super().__init__()
        self._splits = splits
        self._patience = patience
        self._min_delta = min_delta
        self._criterion = criterion
        self._best = -float("inf")
        self._best_epoch = -1
        self.valid: dict[str, float] = {}
        self.test: dict[str, float] = {}
        self.curve: list[Point] = []
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Starts the clock."""
        self._started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        """Adds the epoch to the curve; all ranks decide the same, as their metrics are equal."""
        self.seconds.append(time.perf_counter() - self._started)
        valid = self._score(self._splits.valid)
        score = self._criterion(valid)
        if score > self._best + self._min_delta:
            self._best, self._best_epoch = score, epoch
            self.valid = valid
            self.test = self._score(self._splits.test)
        self.curve.append(Point(int(self.model.optimizer.iterations), logs["loss"], valid["auc"]))
        logs["valid_auc"], logs["valid_score"] = valid["auc"], score
        self.model.stop_training = epoch - self._best_epoch >= self._patience

    def _score(self, clicks: Clicks) -> dict[str, float]:
        batches = Batches(clicks, EVALUATION_BATCH, seed=0, shuffle=False)
        return tfhybrid.metrics.evaluate(self.model, batches.dataset(), batches.steps_per_epoch)
