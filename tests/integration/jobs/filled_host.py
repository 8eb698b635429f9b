"""Trains on ever new keys until the shared memory of one host is full; tells what each rank saw."""

from __future__ import annotations

import socket
import sys
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid

tfhybrid.init()
layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(16), name="item")
optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1))
layer(tf.zeros([1], tf.int64))


@tf.function
def step(keys: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(keys))
    optimizer.apply_gradients(
        zip(tape.gradient(value, layer.trainable_variables), layer.trainable_variables, strict=True)
    )


random = np.random.default_rng(tfhybrid.rank())
began = time.monotonic()
try:
    for _ in range(1000):
        began = time.monotonic()
        step(tf.constant(random.integers(2**62, size=20_000)))
except tf.errors.OpError as error:
    stats = layer.table.stats()
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"rank {tfhybrid.rank()} on {socket.gethostname()}: version {stats.version}, "
        f"{stats.rows} rows, after {seconds:.1f} s: {' '.join(error.message.split())}\n"
    )
