"""A rank of the growth benchmark: trains one table on batches of which a part was never seen."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import tfhybrid
from benchmarks.tables.growth.ids import GrowthConfig, Ids
from benchmarks.tables.growth.peak_use import PeakUse

DIM = 16
WARM_UP_STEPS = 5
STATS_EVERY = 10


def parse_config() -> GrowthConfig:
    """Returns the configuration that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for field in dataclasses.fields(GrowthConfig):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    config = GrowthConfig(**vars(parser.parse_args()))
    if not (0 < config.new_keys <= config.keys <= config.first < config.last):
        parser.error(f"0 < new * keys <= keys <= first < last is wanted. Received: {config}")
    return config


def make_step(layer: tfhybrid.layers.Embedding) -> Callable[[np.ndarray], None]:
    """Returns the step of int64 keys: lookup, gradient, Adagrad."""
    weights = layer.trainable_variables
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.05))
    optimizer.build(weights)

    @tf.function(autograph=False)
    def step(keys: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(layer(keys, training=True)))
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        optimizer.apply(gradients, weights)
        return loss

    return lambda keys: step(tf.constant(keys)).numpy()


def grow(config: GrowthConfig, layer: tfhybrid.layers.Embedding) -> dict[str, object]:
    """Trains until the table has its last rows; returns every step's time and what stats say."""
    step = make_step(layer)
    ids = Ids(config, tfhybrid.rank(), tfhybrid.size())
    for keys in ids.fill():
        step(keys)
    for _ in range(WARM_UP_STEPS):
        step(ids.batch(0))
    rows, milliseconds, stats = [], [], []
    while ids.rows < config.last:
        if len(rows) % STATS_EVERY == 0:
            stats.append(dataclasses.asdict(layer.table.stats()))
        rows.append(ids.rows)
        keys = ids.batch(config.new_keys)
        start = time.perf_counter()
        step(keys)
        milliseconds.append(round(1e3 * (time.perf_counter() - start), 3))
    step(ids.batch(0))
    stats.append(dataclasses.asdict(layer.table.stats()))
    if stats[-1]["rows"] != ids.rows:
        raise RuntimeError(f"{ids.rows} rows were wanted. Received: {stats[-1]}")
    return {"rows": rows, "milliseconds": milliseconds, "stats": stats}


def main() -> None:
    """Runs on every rank; rank 0 prints one JSON line."""
    config = parse_config()
    peak = PeakUse()
    peak.start()
    tfhybrid.init()
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=DIM), name="item")
    layer.build((config.keys,))
    result = grow(config, layer)
    ranks = tfhybrid.distributed.allgather_object(result.pop("milliseconds"))
    if tfhybrid.rank() == 0:
        # A step is as long as on its slowest rank.
        longest = [max(times) for times in zip(*ranks, strict=True)]
        result |= {"milliseconds": longest, "peak_bytes": peak.stop()}
        print(json.dumps({"side": "growth", "ranks": len(ranks)} | result), flush=True)


if __name__ == "__main__":
    main()
