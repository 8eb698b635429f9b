"""One model on MovieLens in order of time: will this user like this movie?

horovodrun -np 2 python -m benchmarks.quality.sequences.train --side din --seed 0

The first 90 % of the ratings are trained on, the last 10 % are judged. What a user liked
before a rating (4 stars or more, the last 50) is the sequence that goes with it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict, deque

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid.data.archives import open_movielens_stream

SIDES = ("dnn", "din")
LONGEST = 50
BATCH = 512
EPOCHS = 3
DIM = 16
# A small epsilon would let lazy Adam move a rare key as far as a frequent one.
TABLE = tfhybrid.TableConfig(
    dim=DIM,
    initializer=tfhybrid.initializers.Normal(stddev=0.01),
    optimizer=tfhybrid.optimizers.Adam(0.02, epsilon=1e-3),
)


def histories(users: np.ndarray, movies: np.ndarray, liked: np.ndarray) -> tf.RaggedTensor:
    """Returns the movies that the user of each sample had liked before it, int64."""
    known: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=LONGEST))
    values: list[int] = []
    lengths = []
    for user, movie, like in zip(users.tolist(), movies.tolist(), liked, strict=True):
        values += known[user]
        lengths.append(len(known[user]))
        if like:
            known[user].append(movie)
    return tf.RaggedTensor.from_row_lengths(np.array(values, np.int64), lengths)


def batches(
    samples: dict[str, tf.Tensor], labels: np.ndarray, order: np.ndarray
) -> tf.data.Dataset:
    """Returns this rank's share of the samples, in this order, `BATCH` at a time over all ranks."""
    mine = order[tfhybrid.rank() :: tfhybrid.size()]
    share = BATCH // tfhybrid.size()

    def gather(chosen: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        return {n: tf.gather(column, chosen) for n, column in samples.items()}, tf.gather(
            labels, chosen
        )

    return tf.data.Dataset.from_tensor_slices(mine).batch(share).map(gather).prefetch(2)


def model_of(side: str) -> keras.Model:
    """Builds a side."""
    if side == "dnn":
        return tfhybrid.models.dnn(["user", "movie"], table=TABLE, hidden=(200, 80), dropout=0.3)
    return tfhybrid.models.din(
        ["user", "movie"], behaviours={"liked": "movie"}, table=TABLE, dropout=0.3
    )


def main() -> None:
    """Trains, judges, and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tfhybrid.init(seed=arguments.seed)
    keras.utils.set_random_seed(arguments.seed)
    clicks = open_movielens_stream()
    users, movies = clicks.features["user"], clicks.features["movie"]
    samples = {
        "user": tf.constant(users[:, np.newaxis]),
        "movie": tf.constant(movies[:, np.newaxis]),
    }
    if arguments.side == "din":
        samples["liked"] = histories(users, movies, clicks.label)
    labels = clicks.label[:, np.newaxis]
    held_out = len(clicks) * 9 // 10
    model = model_of(arguments.side)
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    shuffled = np.random.default_rng(arguments.seed).permutation(held_out)
    started = time.perf_counter()
    model.fit(
        batches(samples, labels, shuffled),
        epochs=EPOCHS,
        verbose=0,
        callbacks=[tfhybrid.callbacks.BroadcastVariables(), tfhybrid.callbacks.MetricAverage()],
    )
    seconds = time.perf_counter() - started
    judged = batches(samples, labels, np.arange(held_out, len(clicks)))
    scores = tfhybrid.metrics.evaluate(model, judged, group="user")
    if tfhybrid.rank() == 0:
        rate = EPOCHS * held_out / seconds
        print(json.dumps({"side": arguments.side, **scores, "samples_per_second": rate}))


if __name__ == "__main__":
    main()
