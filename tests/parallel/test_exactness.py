"""Training on any number of ranks against the float64 reference of the same global batches."""

from __future__ import annotations

import hashlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tests.reference import click_model, training
from tests.reference.click_model import OPTIMIZERS
from tfhybrid import distributed

STEPS = 20
TOLERANCES = {"sgd": 1e-6, "adagrad": 1e-6, "adam": 2e-6}
REDUCTIONS = ("frequency", "sum", "mean")


def loss(reduction: str = "sum_over_batch_size") -> keras.losses.Loss:
    return keras.losses.BinaryCrossentropy(from_logits=True, reduction=reduction)


def fit(model: keras.Model, steps: list[list[training.Batch]]) -> None:
    """Trains this rank's share of the batches."""
    mine = [ranks[tfhybrid.rank()] for ranks in steps]
    keys, labels = click_model.concatenate(mine)
    model.fit(keys, labels, batch_size=len(mine[0][1]), shuffle=False, verbose=0)


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


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_equals_the_reference(optimizer, reduction, record_property) -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = compiled_model(optimizer, reduction)
    trainer = click_model.reference(model, OPTIMIZERS[optimizer][1], reduction=reduction)
    fit(model, steps)
    for ranks in steps:
        trainer.step(ranks)
    print("DIFF", optimizer, reduction, tfhybrid.size(), click_model.relative_differences(model, trainer))
    assert_exact(model, trainer, TOLERANCES[optimizer])
    assert_replicas_equal(model, trainer)
