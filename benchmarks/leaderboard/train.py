"""One model of the leaderboard with one seed.

horovodrun -np 2 python -m benchmarks.leaderboard.train --model DeepFM --seed 0
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

from tensorflow import keras

import tfhybrid
from benchmarks.leaderboard.recipes import RECIPES
from tfhybrid.data import Batches, Clicks, open_frappe

BATCH = 4096
PATIENCE = 2


class Judge(keras.callbacks.Callback):
    """Scores the validation samples after each epoch, and the test samples where that is best.

    All ranks decide alike, as all get the scores of all samples.
    """

    def __init__(self, valid: Clicks, test: Clicks) -> None:
        super().__init__()
        self._valid, self._test = valid, test
        self._epochs_since = 0
        self.valid_auc = 0.0
        self.test: dict[str, float] = {}

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Slows down, stops, or takes note."""
        auc = self._score(self._valid)["auc"]
        if auc > self.valid_auc:
            self.valid_auc, self._epochs_since = auc, 0
            self.test = self._score(self._test)
            return
        self._epochs_since += 1
        rate = self.model.optimizer.learning_rate
        rate.assign(rate * 0.1)
        self.model.stop_training = self._epochs_since == PATIENCE

    def _score(self, clicks: Clicks) -> dict[str, float]:
        batches = Batches(clicks, BATCH, seed=0, shuffle=False)
        return tfhybrid.metrics.evaluate(self.model, batches.dataset(), batches.steps_per_epoch)


def main() -> None:
    """Trains until the validation AUC gets no better and prints the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=RECIPES, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=100)
    for knob in ("l2", "rate", "dropout"):
        parser.add_argument(f"--{knob}", type=float, help="in place of the recipe's")
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.model]
    for knob in ("l2", "rate"):
        if (value := getattr(arguments, knob)) is not None:
            recipe = dataclasses.replace(recipe, **{knob: value})
    if arguments.dropout is not None:
        recipe = dataclasses.replace(
            recipe, options={**recipe.options, "dropout": arguments.dropout}
        )
    tfhybrid.init(seed=arguments.seed)
    keras.utils.set_random_seed(arguments.seed)
    train, valid, test = open_frappe()
    model = recipe.model(list(train.features))
    batches = Batches(train, BATCH // tfhybrid.size(), seed=arguments.seed)
    judge = Judge(valid, test)
    started = time.perf_counter()
    history = model.fit(
        batches.dataset(epochs=None),
        epochs=arguments.epochs,
        steps_per_epoch=batches.steps_per_epoch,
        verbose=0,
        callbacks=[
            tfhybrid.callbacks.BroadcastVariables(),
            tfhybrid.callbacks.MetricAverage(),
            judge,
        ],
    )
    if tfhybrid.rank() == 0:
        result = {
            "side": arguments.model,
            "seed": arguments.seed,
            "auc": judge.test["auc"],
            "log_loss": judge.test["log_loss"],
            "valid_auc": judge.valid_auc,
            "epochs": len(history.epoch),
            "seconds": time.perf_counter() - started,
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
