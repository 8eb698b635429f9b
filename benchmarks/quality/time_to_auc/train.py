"""One side with one seed and learning rate: the AUC of a part by samples and seconds of training.

horovodrun -np 2 python -m benchmarks.quality.time_to_auc.train --side tfhybrid --part valid
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

import tfhybrid
from benchmarks.quality.time_to_auc.plain_deepfm import compiled_plain, numbered
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


class Clock(keras.callbacks.Callback):
    """Scores every few steps while the clock stands, and ends training when all targets are met.

    The clock starts after the first step, in which TensorFlow traces the model. It also stands
    while the validation split is scored after each epoch, by which the learning rate falls.

    Args:
        scored: Samples to score every few steps.
        valid: The validation split.
        samples: Number of samples of an epoch, of all ranks.
        every: Steps between two scores.
        targets: AUCs to reach.

    Attributes:
        curve: Samples, seconds and AUC of each score.
        first_step_seconds: Duration of the first step.
    """

    def __init__(
        self, scored: Part, valid: Part, samples: int, every: int, targets: Sequence[float]
    ) -> None:
        super().__init__()
        self._scored, self._valid = scored, valid
        self._samples, self._every, self._targets = samples, every, targets
        self._steps = self._before = 0
        self._seconds = 0.0
        self.curve: list[tuple[int, float, float]] = []
        self.first_step_seconds = 0.0

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Traces the prediction, and starts to time the first step."""
        self._predict = tf.function(lambda inputs: self.model(inputs, training=False))
        self._wait()
        self._resumed = time.perf_counter()

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Counts the samples of earlier epochs."""
        self._before = epoch * self._samples

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """All ranks decide the same, as they have the same AUC."""
        self._steps += 1
        if self._steps > 1 and self._steps % self._every:
            return
        self._wait()
        passed = time.perf_counter() - self._resumed
        if self._steps == 1:
            self.first_step_seconds = passed
        else:
            self._seconds += passed
            trained = self._before + min((batch + 1) * BATCH, self._samples)
            self.curve.append((trained, self._seconds, self._scored.auc(self._predict)))
            self.model.stop_training = self.curve[-1][2] >= max(self._targets)
        self._resumed = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        """Scores the validation split."""
        self._wait()
        self._seconds += time.perf_counter() - self._resumed
        logs["valid_score"] = self._valid.auc(self._predict)
        self._resumed = time.perf_counter()

    def _wait(self) -> None:
        """Reads a row of each table, which waits for the updates of all steps."""
        self._predict({name: keys[:1] for name, keys in self._scored.inputs.items()})


def first(curve: list[tuple[int, float, float]], target: float) -> dict[str, float] | None:
    """Returns samples and seconds at the first score of at least `target`; `None` if never."""
    for samples, seconds, auc in curve:
        if auc >= target:
            return {"samples": samples, "seconds": seconds}
    return None


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
    splits, rows = numbered(splits)
    model = compiled_plain(rows, recipe)
    hvd.broadcast_variables([variable.value for variable in model.variables], root_rank=0)
    return model, splits


def main() -> None:
    """Trains until all targets are met; rank 0 prints the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=["plain", "tfhybrid"], required=True)
    parser.add_argument("--part", choices=["valid", "test"], default="test", help="to be scored")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of Adam")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", type=float, nargs="+", required=True)
    parser.add_argument("--epochs", type=int, default=20, help="at most")
    parser.add_argument("--every", type=int, default=10, help="steps between two scores")
    parser.add_argument("--samples", type=int, default=10**9, help="of each part, at most")
    arguments = parser.parse_args()
    model, splits = start(arguments.side, arguments.rate, arguments.seed, arguments.samples)
    shard = Shard(hvd.rank(), hvd.size())
    batches = Batches(splits.train, BATCH // hvd.size(), seed=arguments.seed, shard=shard)
    scored, valid = Part(getattr(splits, arguments.part)), Part(splits.valid)
    clock = Clock(scored, valid, len(splits.train), arguments.every, arguments.targets)
    callbacks = [tfhybrid.callbacks.BroadcastVariables()] if arguments.side == "tfhybrid" else []
    callbacks += [clock, *slower_after_a_plateau(REGULARIZED)]
    model.fit(
        batches.dataset(epochs=None),
        epochs=arguments.epochs,
        steps_per_epoch=batches.steps_per_epoch,
        shuffle=False,  # the batches come shuffled
        verbose=0,
        callbacks=callbacks,
    )
    if hvd.rank() == 0:
        result = {
            "side": arguments.side,
            "part": arguments.part,
            "rate": arguments.rate,
            "seed": arguments.seed,
            "reached": {f"{each:g}": first(clock.curve, each) for each in arguments.targets},
            "best_auc": max((auc for *_, auc in clock.curve), default=0.0),
            "first_step_seconds": clock.first_step_seconds,
            "curve": clock.curve,
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
