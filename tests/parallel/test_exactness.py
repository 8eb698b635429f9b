"""Training on any number of ranks against the float64 reference of the same global batches."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.parallel.exact_training import (
    TABLE_OPTIMIZERS,
    TOLERANCES,
    assert_exact,
    assert_replicas_equal,
    compiled_model,
    fit,
    loop_step,
    loss,
)
from tests.support.reference import click_model, training
from tests.support.reference.click_model import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("job")

STEPS = 20
# One of them on other numbers of ranks: how a row changes does not depend on that.
EVERY_OPTIMIZER = [
    pytest.param(name, marks=pytest.mark.world_size if name == "adam" else ())
    for name in OPTIMIZERS
]
REDUCTIONS = ("frequency", "sum", "mean")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("optimizer", EVERY_OPTIMIZER)
def test_training_equals_the_reference(optimizer, reduction) -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = compiled_model(optimizer, reduction)
    trainer = click_model.reference(model, OPTIMIZERS[optimizer][1], reduction=reduction)
    fit(model, steps)
    for ranks in steps:
        trainer.step(ranks)
    assert_exact(model, trainer, TOLERANCES[optimizer])
    assert_replicas_equal(model, trainer)
    for table in click_model.collection(model).tables.values():
        assert table.stats().version == STEPS  # one update per host and step


@pytest.mark.world_size
def test_mean_over_ranks_equals_one_rank_with_all_samples() -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = compiled_model("adagrad", "mean")
    trainer = click_model.reference(model, OPTIMIZERS["adagrad"][1])
    fit(model, steps)
    for ranks in steps:
        trainer.step([click_model.concatenate(ranks)])
    assert_exact(model, trainer, TOLERANCES["adagrad"])


@pytest.mark.world_size
def test_frequency_divides_by_the_number_of_ranks_that_have_the_key() -> None:
    """On three ranks this is the patent's example: e, f, g, h, i are divided by 2, 1, 2, 1, 3."""
    holds = ["egi", "fhi"]
    ranks = [holds[rank % 2] for rank in range(tfhybrid.size())]
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2, "zeros"), name="letter")
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0))
    mine = tf.constant([ord(letter) for letter in ranks[tfhybrid.rank()]])
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(mine)) * (tfhybrid.rank() + 1)
    optimizer.apply_gradients(
        zip(tape.gradient(value, layer.trainable_variables), layer.trainable_variables, strict=True)
    )

    divisors = [sum(letter in rank for rank in ranks) for letter in "efghi"]
    if tfhybrid.size() == 3:
        assert divisors == [2, 1, 2, 1, 3]
    for letter, divisor in zip("efghi", divisors, strict=True):
        total = sum(number + 1 for number, rank in enumerate(ranks) if letter in rank)
        expected = np.float32(-total / max(divisor, 1))
        np.testing.assert_array_equal(layer.table.lookup([ord(letter)]), [[expected, expected]])


def test_two_runs_give_the_same_bits() -> None:
    digests = []
    for _ in range(2):
        tfhybrid.shutdown()
        tfhybrid.init(seed=5)
        model = compiled_model("adam")
        fit(model, click_model.batches(5, tfhybrid.size()))
        tables = click_model.collection(model).tables.values()
        weights = [weight.tobytes() for weight in click_model.dense_weights(model)]
        digests.append(([table.digest() for table in tables], weights))
    assert digests[0] == digests[1]


@pytest.mark.world_size
def test_a_rank_without_samples_takes_part() -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    last = tfhybrid.size() - 1
    for ranks in steps[::3]:
        keys, labels = ranks[last]
        ranks[last] = ({feature: k[:0] for feature, k in keys.items()}, labels[:0])
    model = click_model.keras_model()
    trainer = click_model.reference(model, training.Adagrad(0.02), mean_loss=False)
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.02))
    step = loop_step(model, optimizer, "sum")  # an empty batch has a sum, too
    for ranks in steps:
        step(*ranks[tfhybrid.rank()])
        trainer.step(ranks)
    assert_exact(model, trainer, 1e-6)
    assert_replicas_equal(model, trainer)


def test_a_frozen_layer_keeps_its_tables() -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = click_model.keras_model(trainable=False)
    trainer = click_model.reference(model, OPTIMIZERS["sgd"][1], frozen=["user", "item"])
    model.compile(tfhybrid.DistributedOptimizer(OPTIMIZERS["sgd"][0]()), loss())
    fit(model, steps)
    for ranks in steps:
        trainer.step(ranks)
    assert_exact(model, trainer, TOLERANCES["sgd"])
    tables = click_model.collection(model).tables.values()
    assert [(table.stats().rows, table.stats().version) for table in tables] == [(0, 0)] * 2


def test_two_models_take_turns() -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    pairs = []
    for number, name in enumerate(["sgd", "adagrad"]):
        model = click_model.keras_model(seed=number, prefix=f"{name}_")
        trainer = click_model.reference(
            model, OPTIMIZERS[name][1], prefix=f"{name}_", mean_loss=True
        )
        model.compile(tfhybrid.DistributedOptimizer(OPTIMIZERS[name][0]()), loss())
        pairs.append((model, trainer))
    for number, ranks in enumerate(steps):
        model, trainer = pairs[number % 2]
        keys, labels = ranks[tfhybrid.rank()]
        model.train_on_batch(keys, labels)
        trainer.step(ranks)
    for model, trainer in pairs:
        assert_exact(model, trainer, 1e-6)
        assert_replicas_equal(model, trainer)


@pytest.mark.parametrize("optimizer", TABLE_OPTIMIZERS)
def test_a_table_keeps_its_own_optimizer_and_rate(optimizer) -> None:
    ours, theirs = TABLE_OPTIMIZERS[optimizer]
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = click_model.keras_model(optimizer=ours)
    trainer = click_model.reference(model, theirs, dense_optimizer=OPTIMIZERS["sgd"][1])
    model.compile(tfhybrid.DistributedOptimizer(OPTIMIZERS["sgd"][0]()), loss())
    fit(model, steps)
    for ranks in steps:
        trainer.step(ranks)
    assert_exact(model, trainer, 2e-6)
    assert_replicas_equal(model, trainer)


@pytest.mark.world_size
@pytest.mark.parametrize("kind", ["value", "norm", "global_norm"])
@pytest.mark.parametrize("reduction", ["frequency", "mean"])
def test_clipping_is_of_what_all_ranks_bring(kind, reduction) -> None:
    option = {"value": "clipvalue", "norm": "clipnorm", "global_norm": "global_clipnorm"}[kind]
    limit = {"value": 0.002, "norm": 0.05, "global_norm": 0.1}[kind]
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = click_model.keras_model()
    trainer = click_model.reference(
        model, training.SGD(0.5), reduction=reduction, clipping=(kind, limit)
    )
    unclipped = click_model.reference(model, training.SGD(0.5), reduction=reduction)
    optimizer = keras.optimizers.SGD(0.5, **{option: limit})
    model.compile(tfhybrid.DistributedOptimizer(optimizer, reduction=reduction), loss())
    fit(model, steps)
    for ranks in steps:
        trainer.step(ranks)
        unclipped.step(ranks)
    assert_exact(model, trainer, TOLERANCES["sgd"])
    assert_replicas_equal(model, trainer)
    assert min(click_model.relative_differences(model, unclipped).values()) > 1e-3


@pytest.mark.world_size
@pytest.mark.parametrize("kind", [None, "global_norm"])
@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "every_row"])
def test_decay_and_penalties_come_once_per_step(kind, lazy) -> None:
    """Whatever the number of ranks that have a key; rows that no step touches decay too."""
    steps = click_model.batches(STEPS, tfhybrid.size())
    model, trainer, make = click_model.regularized(lazy, clipping=kind and (kind, 0.1))
    model.compile(tfhybrid.DistributedOptimizer(make()), loss())
    fit(model, steps)
    for ranks in steps:
        trainer.step(ranks)
    assert_exact(model, trainer, TOLERANCES["adam"])
    assert_replicas_equal(model, trainer)
    for table in click_model.collection(model).tables.values():
        assert table.decay == pytest.approx((1 - 0.002) ** STEPS, rel=1e-6)


def test_ranks_may_have_built_different_models_before() -> None:
    """The names of layers count up from there; what ranks exchange must not depend on them."""
    if tfhybrid.rank() == 0:
        click_model.keras_model(prefix="other_").summary(print_fn=lambda *_, **__: None)
    steps = click_model.batches(2, tfhybrid.size())
    model = compiled_model("sgd")
    trainer = click_model.reference(model, OPTIMIZERS["sgd"][1])
    fit(model, steps)
    for ranks in steps:
        trainer.step(ranks)
    assert_exact(model, trainer, 1e-6)


@pytest.mark.world_size
def test_one_rank_alone_evaluates() -> None:
    model = compiled_model("sgd")
    (ranks,) = click_model.batches(1, tfhybrid.size())
    if tfhybrid.rank() == 0:
        keys, labels = ranks[0]
        assert model.evaluate(keys, labels, verbose=0) > 0
    fit(model, [ranks])
    assert model.optimizer.iterations == 1
