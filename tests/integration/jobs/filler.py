"""Trains with ever new keys until the store is full, then shows what is left of the table."""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

import tfhybrid

tfhybrid.init()
layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=64, optimizer="adam"), name="item")
optimizer = tfhybrid.DistributedOptimizer("adam")
report = {}
for number in range(10**6):
    keys = tf.range(number * 4096, (number + 1) * 4096, dtype=tf.int64)
    before = layer.table.digest() if number else 0
    try:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(keys))
        variables = layer.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        layer(keys[:1])  # waits for the update, and tells what came of it
    except tf.errors.ResourceExhaustedError as error:
        report = {"message": error.message, "steps": number, "same": layer.table.digest() == before}
        break
report |= {
    "rows": layer.table.stats().rows,
    "version": layer.table.stats().version,
    "finite": bool(np.isfinite(layer.table.lookup(np.arange(10))).all()),
}
sys.stdout.write(json.dumps(report) + "\n")
