"""A job that trains until it is killed; each rank says when it has begun."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import tensorflow as tf

import tfhybrid

tfhybrid.init(job=sys.argv[1])
layer = tfhybrid.layers.Embedding(
    tfhybrid.TableConfig(dim=8, optimizer=tfhybrid.optimizers.Adagrad(0.1)), name="item"
)
optimizer = tfhybrid.DistributedOptimizer("sgd")
rng = np.random.default_rng(tfhybrid.rank())


@tf.function
def step(keys: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(keys) ** 2)
    variables = layer.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


for number in range(10**9):
    step(tf.constant(rng.integers(0, 10**6, (512, 1))))
    if number == 3:
        sys.stdout.write(f"running rank={tfhybrid.rank()} pid={os.getpid()}\n")
        sys.stdout.flush()
    time.sleep(0.02)  # so that others can start beside it
