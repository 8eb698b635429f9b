"""The training of the click model on all ranks, and how near it must come to the reference."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model, training
from tests.support.reference.click_model import OPTIMIZERS
from tfhybrid import distributed

TOLERANCES = {"sgd": 1e-6, "adagrad": 1e-6, "adam": 2e-6}
# Of tables, beside those that both halves of the model have.
TABLE_OPTIMIZERS = {
    "momentum": (tfhybrid.optimizers.SGD(0.1, 0.9), training.Momentum(0.1)),
    "nesterov": (
        tfhybrid.optimizers.SGD(0.1, 0.9, nesterov=True),
        training.Momentum(0.1, nesterov=True),
    ),
    "row_adagrad": (tfhybrid.optimizers.RowAdagrad(0.1), training.RowAdagrad(0.1)),
    "amsgrad": (tfhybrid.optimizers.Adam(0.001, amsgrad=True), training.Amsgrad(0.001)),
    "rmsprop": (
        tfhybrid.optimizers.RMSprop(0.001, 0.9, 0.5, 1e-3, centered=True),
        training.RMSprop(0.001),
    ),
    "ftrl": (
        tfhybrid.optimizers.Ftrl(
            0.1, l1_regularization_strength=0.001, l2_regularization_strength=0.01
        ),
        training.Ftrl(0.1),
    ),
}


def loss(reduction: str = "sum_over_batch_size") -> keras.losses.Loss:
    return keras.losses.BinaryCrossentropy(from_logits=True, reduction=reduction)


def loop_step(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    reduction: str = "sum_over_batch_size",
    *,
    eager: bool = False,
) -> Callable[[dict, tf.Tensor], None]:
    """Returns the step of a training loop of one's own."""
    of_batch = loss(reduction)

    def step(keys, labels) -> None:
        with tf.GradientTape() as tape:
            value = of_batch(labels[:, tf.newaxis], model(keys, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step if eager else tf.function(step, reduce_retracing=True)


def fit(model: keras.Model, steps: list[list[training.Batch]]) -> None:
    """Trains this rank's share of the batches."""
    mine = [ranks[tfhybrid.rank()] for ranks in steps]
    keys, labels = click_model.concatenate(mine)
    model.fit(
        keys,
        labels,
        batch_size=len(mine[0][1]),
        shuffle=False,
        verbose=0,
        callbacks=[tfhybrid.callbacks.BroadcastVariables()],
    )


def compiled_model(optimizer: str, reduction: str = "frequency") -> keras.Model:
    model = click_model.keras_model()
    wrapped = tfhybrid.DistributedOptimizer(OPTIMIZERS[optimizer][0](), reduction=reduction)
    model.compile(optimizer=wrapped, loss=loss())
    return model


def assert_exact(model: keras.Model, trainer: training.Trainer, tolerance: float) -> None:
    differences = click_model.relative_differences(model, trainer)
    assert max(differences.values()) <= tolerance, differences


def assert_replicas_equal(model: keras.Model, trainer: training.Trainer) -> None:
    """All ranks read the same bits, in tables and dense weights."""
    digest = hashlib.sha256()
    for name, table in click_model.collection(model).tables.items():
        digest.update(table.lookup(np.array([*trainer.tables[name].rows, 123456])).tobytes())
    for weight in click_model.dense_weights(model):
        digest.update(weight.tobytes())
    assert len(set(distributed.allgather_object(digest.hexdigest()))) == 1
