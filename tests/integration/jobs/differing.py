"""Trains a few steps, in which the last rank differs from the others or comes late.

differing.py none | table | optimizer | first-step | layer | other-layer | late [EXCHANGE]

Prints a digest of all weights at the end.
"""

from __future__ import annotations

import sys
import threading

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid.job import current_job
from tfhybrid.job.waits import LOGGED_SECONDS

STEPS = 5
DIFFERS_AT = 2

way = sys.argv[1]
exchange = sys.argv[2] if len(sys.argv) > 2 else "leaders"
tfhybrid.init(seed=3)
last = tfhybrid.rank() == tfhybrid.size() - 1

config = tfhybrid.TableConfig(4, tfhybrid.initializers.Uniform(-0.5, 0.5))
tables = [tfhybrid.layers.Embedding(config, name=name) for name in ("user", "item")]
layers = [
    keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(seed), name=name)
    for seed, name in enumerate(("left", "right"))
]
for table in tables:
    table(tf.zeros([1, 1], tf.int64))
for layer in layers:
    layer.build([None, 4])
variables = [weight for each in (*tables, *layers) for weight in each.trainable_variables]
optimizers = [
    tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1), exchange=exchange) for _ in range(2)
]
optimizers[0].build(variables)
if way == "optimizer":
    optimizers[1].build([weight for layer in layers for weight in layer.trainable_variables])


@tf.function
def step(keys: tf.Tensor, optimizer: int, used_tables: tuple, used_layers: tuple) -> None:
    with tf.GradientTape() as tape:
        embeddings = tf.add_n([tables[used](keys) for used in used_tables])
        loss = sum(tf.reduce_sum(layers[used](embeddings) ** 2) for used in used_layers)
    trained = variables if optimizer == 0 else variables[len(tables) :]
    gradients = tape.gradient(loss, trained)
    optimizers[optimizer].apply_gradients(zip(gradients, trained, strict=True))


random = np.random.default_rng(tfhybrid.rank())
for number in range(STEPS):
    differs = last and number == DIFFERS_AT
    if differs and way == "late":
        threading.Event().wait(LOGGED_SECONDS + 6)  # and before it is logged again
    step(
        tf.constant(random.integers(0, 9, (8, 1))),
        1 if differs and way in ("optimizer", "first-step") else 0,
        (0,) if differs and way == "table" else (0, 1),
        # "other-layer": those of both ranks have the same shapes.
        {"layer": (0,), "other-layer": (1 - int(differs),)}.get(way, (0, 1))
        if differs or way == "other-layer"
        else (0, 1),
    )
digests = [f"{current_job().engine.digest(name):x}" for name in ("user", "item")]
weights = [float(tf.reduce_sum(weight)) for layer in layers for weight in layer.weights]
sys.stdout.write(f"trained {digests} {weights}\n")
