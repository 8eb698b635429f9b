"""Restores, then trains and saves until it is killed; says when it saves for the second time.

saving.py DIRECTORY
"""

from __future__ import annotations

import sys

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tfhybrid import checkpoint
from tfhybrid.data import Position

tfhybrid.init()
model = click_model.keras_model()
optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1))
model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
manager = checkpoint.CheckpointManager(model, sys.argv[1], max_to_keep=4, full_every_saves=3)
epoch, step = manager.restore()
random = np.random.default_rng(step)
labels = np.ones(20_000, np.float32)
for number in range(step, 10**9):
    keys = {
        feature: random.integers(0, 10**7, (len(labels), length))
        for feature, length in click_model.LENGTHS.items()
    }
    model.train_on_batch(keys, labels)
    manager.save(Position(epoch, number + 1))
    if number == step + 1:
        sys.stdout.write(f"saving, restored at {step}\n")
        sys.stdout.flush()
