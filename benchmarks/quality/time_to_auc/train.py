"""A side in Keras, one seed and learning rate: the AUC of a part by samples and seconds.

horovodrun -np 2 python -m benchmarks.quality.time_to_auc.train --side tfhybrid --part valid
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

import tfhybrid
from benchmarks.quality.time_to_auc.clock import Clock, parser_of, result_of
from benchmarks.quality.time_to_auc.numbered import numbered
from benchmarks.quality.time_to_auc.plain_deepfm import compiled_plain
from benchmarks.step.step.model import share_threads
from examples.click_training import REGULARIZED, Splits, compiled_model, slower_after_a_plateau
from tfhybrid import metrics
from tfhybrid.data import Batches, Clicks, Shard
from tfhybrid.data.archives import open_frappe

BATCH = REGULARIZED.batch_size  # of all ranks


class Part:
    """Samples of all ranks, of which this rank scores its share.

    Args:
        clicks: The samples of all ranks.
    """

    def __init__(self, clicks: Clicks) -> None:
        own = clicks.shard(hvd.rank(), hvd.size())
        self._labels = own.label
        self.inputs = {name: tf.constant(keys[:, None]) for name, keys in own.features.items()}

    def auc(self, predict: Callable[[dict[str, tf.Tensor]], tf.Tensor]) -> float:
        """Returns the AUC of the samples of all ranks.

        Args:
            predict: Function that returns the logits of inputs, `[n, 1]`.
        """
        logits = predict(self.inputs).numpy().ravel()
        columns = hvd.allgather(np.stack([self._labels, logits], axis=1)).numpy()
        return metrics.auc(columns[:, 0], columns[:, 1])


class Timed(keras.callbacks.Callback):
    """Ends training when all targets are met, and logs the validation split's AUC.

    Args:
        scored: Samples to score every few steps.
        valid: The validation split.
        setting: Arguments of the clock.
    """

    def __init__(self, scored: Part, valid: Part, **setting: Any) -> None:
        super().__init__()
        self._scored, self._valid, self._setting = scored, valid, setting

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Traces the prediction, and starts the clock."""
        self._predict = tf.function(lambda inputs: self.model(inputs, training=False))
        # A row of each table: to read it is to wait for the updates of all steps.
        rows = {name: keys[:1] for name, keys in self._scored.inputs.items()}
        self.clock = Clock(
            lambda: self._scored.auc(self._predict), lambda: self._predict(rows), **self._setting
        )

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Keeps the number of the epoch."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """All ranks decide the same, as they have the same AUC."""
        if self.clock.step_ended(self._epoch, batch):
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        """Scores the validation split."""
        logs["valid_score"] = self.clock.stopped(lambda: self._valid.auc(self._predict))


def start(side: str, rate: float, seed: int, limit: int) -> tuple[keras.Model, Splits]:
    """Starts this rank, and returns its model and the samples of all ranks.

    Args:
        side: `tfhybrid`, or `plain` for Keras with Horovod.
        rate: Adam's learning rate.
        seed: Seed of initial weights and dropout.
        limit: Maximum number of samples of each part.
    """
    # With it both sides update all rows at every step.
    recipe = dataclasses.replace(REGULARIZED, dense_rate=rate)
    if side == "tfhybrid":
        tfhybrid.init(seed=seed)
    else:
        hvd.init()
        share_threads(hvd.local_size())
    # Each rank drops activations of its own; initial weights are those of rank 0.
    keras.utils.set_random_seed(1000 * seed + hvd.rank())
    splits = Splits(*(clicks.take(slice(limit)) for clicks in open_frappe()))
    if side == "tfhybrid":
        return compiled_model(list(splits.train.features), recipe), splits
    numbers, rows = numbered(splits)
    splits = Splits(*numbers)
    model = compiled_plain(rows, recipe)
    hvd.broadcast_variables([variable.value for variable in model.variables], root_rank=0)
    return model, splits


def main() -> None:
    """Trains until all targets are met; rank 0 prints the result."""
    arguments = parser_of(__doc__, ["plain", "tfhybrid"]).parse_args()
    model, splits = start(arguments.side, arguments.rate, arguments.seed, arguments.samples)
    shard = Shard(hvd.rank(), hvd.size())
    batches = Batches(splits.train, BATCH // hvd.size(), seed=arguments.seed, shard=shard)
    scored, valid = Part(getattr(splits, arguments.part)), Part(splits.valid)
    timed = Timed(
        scored,
        valid,
        samples=len(splits.train),
        batch=BATCH,
        every=arguments.every,
        targets=arguments.targets,
    )
    callbacks = [tfhybrid.callbacks.BroadcastVariables()] if arguments.side == "tfhybrid" else []
    callbacks += [timed, *slower_after_a_plateau(REGULARIZED)]
    model.fit(
        batches.dataset(epochs=None),
        epochs=arguments.epochs,
        steps_per_epoch=batches.steps_per_epoch,
        shuffle=False,  # the batches come shuffled
        verbose=0,
        callbacks=callbacks,
    )
    if hvd.rank() == 0:
        print(json.dumps(result_of(timed.clock, arguments)), flush=True)


if __name__ == "__main__":
    main()
