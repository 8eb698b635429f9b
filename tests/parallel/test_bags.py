"""Tables whose keys come in weighted bags of any length, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference import training
from tfhybrid import distributed

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]

STEPS, BAGS, DIM = 6, 8, 5
WIDE = tfhybrid.initializers.Uniform(-0.5, 0.5)


def batch_of(step: int, rank: int) -> tuple[tf.RaggedTensor, tf.RaggedTensor, np.ndarray]:
    """Returns keys, weights and the gradient of each bag's embedding."""
    rng = np.random.default_rng((step, rank))
    lengths = rng.integers(0, 5, BAGS)
    keys = rng.integers(-10, 10, lengths.sum())
    weights = rng.uniform(0.1, 2, lengths.sum()).astype(np.float32)
    bags = tf.RaggedTensor.from_row_lengths(keys, lengths)
    return bags, bags.with_flat_values(tf.constant(weights)), rng.normal(size=(BAGS, DIM))


def gradients_of(combiner: str, step: int, rank: int) -> dict[int, np.ndarray]:
    keys, weights, upstream = batch_of(step, rank)
    shares = []
    for bag, gradient in zip(weights.to_list(), upstream, strict=True):
        own = np.array(bag)
        divisor = {"sum": 1, "mean": own.sum(), "sqrtn": np.sqrt((own**2).sum())}[combiner]
        shares.append(own[:, np.newaxis] / divisor * gradient)
    return training.sum_by_key(keys.flat_values.numpy(), np.concatenate(shares))


def out_of_order(bags: tf.RaggedTensor, seed: int) -> tf.SparseTensor:
    """Returns the same bags with their values in a random order of rows and columns."""
    sparse = bags.to_sparse()
    order = np.random.default_rng(seed).permutation(len(sparse.values))
    return tf.SparseTensor(
        tf.gather(sparse.indices, order), tf.gather(sparse.values, order), sparse.dense_shape
    )


@pytest.mark.parametrize(
    ("combiner", "kind"),
    [("sum", "ragged"), ("mean", "ragged"), ("sqrtn", "ragged"), ("mean", "sparse")],
)
def test_updates_are_exact(combiner, kind) -> None:
    config = tfhybrid.TableConfig(DIM, WIDE, combiner=combiner)
    layer = tfhybrid.layers.Embedding(config, name="tag")
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1))
    reference = training.Table("tag", config, training.Adagrad(0.1))

    @tf.function(reduce_retracing=True)
    def step(keys, weights, upstream) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(keys, weights) * upstream)
        variables = layer.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for number in range(STEPS):
        keys, weights, upstream = batch_of(number, tfhybrid.rank())
        if kind == "sparse":
            keys, weights = out_of_order(keys, 1), out_of_order(weights, 2)
        step(keys, weights, tf.constant(upstream, tf.float32))
        ranks = [gradients_of(combiner, number, rank) for rank in range(tfhybrid.size())]
        reference.update(training.reduce(ranks, [BAGS] * len(ranks), "frequency"))
    keys = np.arange(-10, 10)
    assert layer.table.rows == len(reference.rows)
    np.testing.assert_allclose(layer.table.lookup(keys), reference.lookup(keys), atol=2e-6)
    assert len(set(distributed.allgather_object(layer.table.lookup(keys).tobytes()))) == 1
