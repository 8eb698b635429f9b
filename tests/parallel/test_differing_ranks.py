"""Ranks that built something else than the others are told so before their first step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.parallel.conftest import common_directory
from tests.support.reference import click_model
from tfhybrid import checkpoint, distributed
from tfhybrid.data import Position
from tfhybrid.errors import ConfigError, ReplicaError

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]

adam, sgd = keras.optimizers.Adam, keras.optimizers.SGD


def refused(message: str, kind: type[Exception] = ConfigError) -> AbstractContextManager[Any]:
    """What a step raises on every rank of several."""
    if tfhybrid.size() == 1:
        return contextlib.nullcontext()
    return pytest.raises(kind, match=message)


def is_last() -> bool:
    return tfhybrid.rank() == tfhybrid.size() - 1


def train(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    keys, labels = click_model.batches(1, tfhybrid.size())[0][tfhybrid.rank()]
    model.train_on_batch(keys, labels)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda last: adam(0.02 if last else 0.01), {}, r"same optimizer's learning_rate"),
        (lambda last: sgd(0.01) if last else adam(0.01), {}, r"same optimizer. Received: 'Adam'"),
        (lambda last: adam(0.01), {"reduction": ("mean", "sum")}, r"same reduction"),
        (lambda last: adam(0.01), {"backward_passes_per_step": (2, 3)}, r"same backward_passes"),
    ],
)
def test_an_optimizer_of_one_ranks_own(
    make: Callable[[bool], keras.optimizers.Optimizer], options: dict, message: str
) -> None:
    mine = {name: values[is_last()] for name, values in options.items()}
    optimizer = tfhybrid.DistributedOptimizer(make(is_last()), **mine)
    with refused(rf"All ranks must have the {message}.* on rank 0.*, but .* on rank \d"):
        train(click_model.keras_model(), optimizer)


@pytest.mark.parametrize("own", ["adagrad", "sgd"])
def test_an_optimizer_of_a_table_of_one_ranks_own(own: str) -> None:
    optimizer = tfhybrid.DistributedOptimizer(adam(0.01))
    with refused("same tables' optimizers"):
        train(click_model.keras_model(optimizer=own if is_last() else "rmsprop"), optimizer)


def test_keys_without_a_row_that_read_something_else_on_one_rank() -> None:
    config = tfhybrid.TableConfig(2, unseen="initial" if is_last() else None)
    item = keras.Input((1,), dtype="int64", name="item")
    rows = keras.layers.Flatten()(tfhybrid.layers.Embedding(config, table="items")(item))
    model = keras.Model({"item": item}, rows)
    model.compile(tfhybrid.DistributedOptimizer(adam(0.01)), "mse")
    message = (
        r"same TableConfig\(unseen=\) of table 'items'.*'zeros' on rank 0.*'initial' on rank \d"
    )
    with refused(message):
        model.train_on_batch({"item": np.zeros((1, 1), np.int64)}, np.zeros((1, 2)))


def test_a_dense_layer_of_another_shape() -> None:
    base = click_model.keras_model()
    x = keras.layers.Dense(5 if is_last() else 4)(base.layers[-2].output)
    model = keras.Model(base.inputs, keras.layers.Dense(1)(x))
    with refused(r"same dense variable \d. Received: \[\[\d+, 4\], 'float32'\] on rank 0"):
        train(model, tfhybrid.DistributedOptimizer(adam(0.01)))


def test_a_layer_more() -> None:
    base = click_model.keras_model()
    x = base.layers[-2].output
    for _ in range(1 + is_last()):
        x = keras.layers.Dense(4)(x)
    model = keras.Model(base.inputs, keras.layers.Dense(1)(x))
    with refused("same number of dense variables"):
        train(model, tfhybrid.DistributedOptimizer(adam(0.01)))


def test_a_learning_rate_that_one_rank_has_changed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = click_model.keras_model()
    train(model, tfhybrid.DistributedOptimizer(adam(0.01)))
    compare = tfhybrid.callbacks.CompareReplicas()
    compare.set_model(model)
    compare.compare()
    model.optimizer.learning_rate = 0.5 if is_last() else 0.25
    message = r"same learning rate. Received: 0.25 on rank 0.*, but 0.5 on rank \d"
    with refused(message):
        checkpoint.save(model, common_directory(tmp_path_factory), Position(0, 1))
    with refused(message, ReplicaError):
        compare.compare()


def test_ranks_that_were_in_different_calls_can_meet_in_the_next() -> None:
    other = distributed.call("other") if is_last() else distributed.call("one")
    with refused(r"call 1 of one on rank 0.*call 1 of other on rank \d"), other:
        distributed.allgather_object(None)
    with distributed.call("one"):
        assert distributed.allgather_object(tfhybrid.rank()) == [*range(tfhybrid.size())]
