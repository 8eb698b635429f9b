"""One model of the leaderboard with one seed.

horovodrun -np 2 python -m benchmarks.quality.leaderboard.train --model DeepFM --seed 0
"""

from __future__ import annotations

import argparse
import json
import time

from tensorflow import keras

import tfhybrid
from benchmarks.quality.leaderboard.recipes import RECIPES
from examples.click_training import Judge, Splits, auc_less_log_loss
from tfhybrid.data import Batches
from tfhybrid.data.archives import open_frappe

BATCH = 4096
MIN_DELTA = 1e-6
LEAST_RATE = 1e-6
EPOCHS = 100  # at most


def main() -> None:
    """Trains until the validation score gets no better and prints the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=RECIPES, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.model]
    tfhybrid.init(seed=arguments.seed)
    # Each rank drops activations of its own; initial weights are those of rank 0.
    keras.utils.set_random_seed(1000 * arguments.seed + tfhybrid.rank())
    splits = Splits(*open_frappe())
    batches = Batches(splits.train, BATCH // tfhybrid.size(), seed=arguments.seed)
    model = recipe.model(list(splits.train.features))
    judge = Judge(splits, recipe.patience, MIN_DELTA, auc_less_log_loss)
    started = time.perf_counter()
    model.fit(
        batches.dataset(epochs=None),
        epochs=EPOCHS,
        steps_per_epoch=batches.steps_per_epoch,
        shuffle=False,  # the batches come shuffled
        verbose=0,
        callbacks=[
            tfhybrid.callbacks.BroadcastVariables(),
            tfhybrid.callbacks.MetricAverage(),
            judge,
            keras.callbacks.ReduceLROnPlateau(
                "valid_score",
                factor=recipe.slowdown,
                patience=1,
                mode="max",
                min_delta=MIN_DELTA,
                min_lr=LEAST_RATE,
            ),
        ],
    )
    if tfhybrid.rank() == 0:
        result = {
            "side": arguments.model,
            "seed": arguments.seed,
            "auc": judge.test["auc"],
            "log_loss": judge.test["log_loss"],
            "valid_auc": judge.valid["auc"],
            "valid_log_loss": judge.valid["log_loss"],
            "epochs": len(judge.curve),
            "seconds": time.perf_counter() - started,
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
