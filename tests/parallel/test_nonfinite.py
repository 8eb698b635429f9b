"""A gradient that is NaN or infinite on one rank: the step raises on all, or is skipped on all."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.parallel.exact_training import TOLERANCES, assert_exact, assert_replicas_equal
from tests.support.reference import click_model
from tests.support.reference.click_model import OPTIMIZERS
from tfhybrid.errors import ConfigError

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]

STEPS = 6
BAD = 3  # the step in which the last rank's gradients are not finite


def step_of(model: keras.Model, optimizer: keras.optimizers.Optimizer):
    """Returns a step whose gradients, of tables and of dense weights, are multiplied."""
    binary = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function(reduce_retracing=True)
    def step(keys, labels, of_tables, of_dense):
        with tf.GradientTape() as tape:
            value = binary(labels[:, tf.newaxis], model(keys, training=True))
        gradients = [
            tf.IndexedSlices(g.values * of_tables, g.indices, g.dense_shape)
            if isinstance(g, tf.IndexedSlices)
            else g * of_dense
            for g in tape.gradient(value, model.trainable_variables)
        ]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step


def factors(number: int, where: str, value: float) -> tuple[tf.Tensor, tf.Tensor]:
    bad = number == BAD and tfhybrid.rank() == tfhybrid.size() - 1
    return (
        tf.constant(value if bad and where == "tables" else 1.0),
        tf.constant(value if bad and where == "dense" else 1.0),
    )


@pytest.mark.parametrize(
    ("where", "value"), [("tables", np.nan), ("dense", np.inf), ("tables", 1e30), ("dense", 1e30)]
)
def test_a_skipped_step_changes_nothing_anywhere(where, value, caplog) -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = click_model.keras_model()
    trainer = click_model.reference(model, OPTIMIZERS["sgd"][1])
    wrapped = tfhybrid.DistributedOptimizer(OPTIMIZERS["sgd"][0](), on_nonfinite="skip")
    step = step_of(model, wrapped)
    for number, ranks in enumerate(steps):
        step(*ranks[tfhybrid.rank()], *factors(number, where, value))
        if number != BAD:
            trainer.step(ranks)
    assert_exact(model, trainer, 1e-6)
    assert_replicas_equal(model, trainer)
    assert wrapped.iterations == STEPS
    for table in click_model.collection(model).tables.values():
        assert table.stats().version == STEPS
    last = tfhybrid.size() - 1
    named = [line for line in caplog.messages if "the step is skipped on all ranks" in line]
    assert len(named) == (tfhybrid.rank() == last)
    if named:
        what = r"key -?\d+ of table '(item|user)'" if where == "tables" else "variable '.+'"
        assert named[0].startswith("The gradient of ")
        assert f"on rank {last} on " in named[0]
        assert tf.strings.regex_full_match(named[0], f".*{what}.*")


@pytest.mark.parametrize("where", ["tables", "dense"])
def test_a_step_that_raises_raises_on_all_ranks(where) -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = click_model.keras_model()
    trainer = click_model.reference(model, OPTIMIZERS["sgd"][1])
    step = step_of(model, tfhybrid.DistributedOptimizer(OPTIMIZERS["sgd"][0]()))
    for number, ranks in enumerate(steps[:BAD]):
        step(*ranks[tfhybrid.rank()], *factors(number, where, np.nan))
        trainer.step(ranks)
    what = "of table" if where == "tables" else "variable '"
    last = tfhybrid.size() - 1
    with pytest.raises(tf.errors.OpError, match=rf"{what}.*not finite.* on rank {last} on "):
        step(*steps[BAD][tfhybrid.rank()], *factors(BAD, where, np.nan))
    for name, table in click_model.collection(model).tables.items():
        stats = table.stats()
        assert stats.rows == len(trainer.tables[name].rows)
        assert stats.version == BAD


def test_what_would_overflow_when_ranks_are_summed_raises() -> None:
    """Finite on each rank. Tables and dense weights stay at the step before."""
    steps = click_model.batches(STEPS, tfhybrid.size())
    model = click_model.keras_model()
    trainer = click_model.reference(model, OPTIMIZERS["adam"][1])
    step = step_of(model, tfhybrid.DistributedOptimizer(OPTIMIZERS["adam"][0]()))
    one = tf.constant(1.0)
    for ranks in steps[:BAD]:
        step(*ranks[tfhybrid.rank()], one, one)
        trainer.step(ranks)
    with pytest.raises(tf.errors.OpError, match=r"too large for its sums and squares"):
        step(*steps[BAD][tfhybrid.rank()], tf.constant(3e38), one)
    assert_exact(model, trainer, TOLERANCES["adam"])
    assert_replicas_equal(model, trainer)


def test_an_unknown_answer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"on_nonfinite must be one of .*Received: 'ignore'"):
        tfhybrid.DistributedOptimizer("sgd", on_nonfinite="ignore")
    with pytest.raises(ConfigError, match=r"backward_passes_per_step .*Received: 0"):
        tfhybrid.DistributedOptimizer("sgd", backward_passes_per_step=0)
    with pytest.raises(ConfigError, match=r"wire_dtype must be one of .*Received: 'float16'"):
        tfhybrid.DistributedOptimizer("sgd", wire_dtype="float16")
