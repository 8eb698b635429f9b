"""Batches of different lengths and numbers for each rank, and a model that trains on them."""

from __future__ import annotations

import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.parallel.exact_training import loss
from tests.support.reference import click_model, training
from tests.support.reference.click_model import OPTIMIZERS
from tfhybrid import distributed

BATCHES = (10, 30, 20, 5)  # of the ranks
SHORT = 5  # samples of a rank's last batch


def share_of(rank: int, first: int = 0) -> list[training.Batch]:
    """Returns the batches of one rank; the last is short."""
    count = BATCHES[rank]
    rng = np.random.default_rng((rank, first))
    made = []
    for number in range(count):
        samples = SHORT if number == count - 1 else 16
        keys = {f: rng.integers(-30, 30, (samples, n)) for f, n in click_model.LENGTHS.items()}
        made.append((keys, rng.integers(0, 2, samples).astype(np.float64)))
    return made


def dataset_of(batches: list[training.Batch]) -> tf.data.Dataset:
    """Returns the batches as they are, without a length that Keras could take for all ranks'."""

    def generate():
        yield from batches

    signature = (
        {f: tf.TensorSpec((None, n), tf.int64) for f, n in click_model.LENGTHS.items()},
        tf.TensorSpec((None,), tf.float64),
    )
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


def steps_of(shares: list[list[training.Batch]]) -> list[list[training.Batch]]:
    """Returns the batches of each step: of the ranks that still have one."""
    longest = max(len(share) for share in shares)
    return [[share[k] for share in shares if k < len(share)] for k in range(longest)]


def compiled(optimizer: str, **options) -> keras.Model:
    model = click_model.keras_model()
    wrapped = tfhybrid.DistributedOptimizer(OPTIMIZERS[optimizer][0](), **options)
    model.compile(wrapped, loss())
    return model


def assert_same_everywhere(model: keras.Model, optimizer) -> None:
    """Dense weights and optimizer state have the same bits on all ranks."""
    digest = hashlib.sha256()
    for variable in [*click_model.dense_weights(model), *optimizer.variables]:
        digest.update(np.asarray(variable).tobytes())
    assert len(set(distributed.allgather_object(digest.hexdigest()))) == 1
