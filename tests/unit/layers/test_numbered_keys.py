"""A lookup whose keys are numbered, because a gradient follows, reads what any other reads."""

from __future__ import annotations

import concurrent.futures

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid.ops._library import OPS

pytestmark = [pytest.mark.usefixtures("job"), needs_keras_3]

INT64 = np.iinfo(np.int64)
FEATURES = {
    "clicked": tfhybrid.TableConfig(dim=3),
    "bought": tfhybrid.TableConfig(dim=3, combiner="mean"),
    "user": tfhybrid.TableConfig(dim=5),
}


def batch(seed: int) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Returns keys of which most come several times, features of one table among them."""
    random = np.random.default_rng(seed)
    edges = [0, -1, INT64.min, INT64.max]
    return {
        "clicked": tf.constant(random.choice([*edges, *range(40)], size=(300, 1)), tf.int64),
        "bought": tf.RaggedTensor.from_row_lengths(
            tf.constant(random.choice([*edges, *range(60)], size=900), tf.int64),
            random.multinomial(900, np.full(300, 1 / 300)),
        ),
        "user": tf.constant(random.integers(-500, 500, size=(300, 1)), tf.int64),
    }


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("concatenate", [False, True])
def test_reads_what_a_lookup_without_a_gradient_reads(in_graph, concatenate) -> None:
    collection = tfhybrid.layers.EmbeddingCollection(
        FEATURES, shared={"item": ["clicked", "bought"]}, concatenate=concatenate
    )
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1, weight_decay=0.01))

    def train(keys):
        with tf.GradientTape() as tape:
            embeddings = tf.nest.flatten(collection(keys))
            loss = tf.add_n([tf.reduce_sum(tf.square(each)) for each in embeddings])
        optimizer.apply(tape.gradient(loss, collection.trainable_variables))
        return embeddings

    if in_graph:
        train = tf.function(train)
    read = tf.function(lambda keys: tf.nest.flatten(collection(keys, training=True)))
    collection(batch(0))
    optimizer.build(collection.trainable_variables)
    for step in range(3):
        expected = read(batch(step))
        for wanted, found in zip(expected, train(batch(step)), strict=True):
            np.testing.assert_array_equal(wanted, found)


def test_threads_number_keys_side_by_side() -> None:
    collection = tfhybrid.layers.EmbeddingCollection(
        FEATURES, shared={"item": ["clicked", "bought"]}, concatenate=True
    )
    expected = collection(batch(0))

    @tf.function
    def read(keys):
        with tf.GradientTape() as tape:
            embeddings = collection(keys)
        slices = tape.gradient(embeddings, collection.trainable_variables)
        return embeddings, [each.indices for each in slices]

    _, keys = read(batch(0))
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for embeddings, found in threads.map(lambda _: read(batch(0)), range(200)):
            np.testing.assert_array_equal(expected, embeddings)
            for wanted, of_table in zip(keys, found, strict=True):
                np.testing.assert_array_equal(wanted, of_table)


def test_distinct_rows_lie_by_dim_in_order_of_first_occurrence() -> None:
    dims = {"a": 2, "b": 3, "c": 2}
    layer = tfhybrid.layers.EmbeddingCollection(
        {name: tfhybrid.TableConfig(dim) for name, dim in dims.items()}
    )
    layer.build()
    proxies = {proxy.table.name: proxy for proxy in layer.trainable_variables}
    names = ["a", "b", "c", "a"]
    found = OPS.tfhybrid_distinct_rows(
        proxies=[proxies[name].table_ref.proxy for name in names],
        keys=[[[7, -1], [7, INT64.min]], [7], [], [INT64.max, -1, 8]],
        engine=proxies["a"].table_ref.engine,
        tables=names,
        dims=[dims[name] for name in names],
        D=2,
        T=3,
    )
    of_a = [7, -1, INT64.min, INT64.max, 8]
    for distinct, keys in zip(found.distinct, (of_a, [7], []), strict=True):
        np.testing.assert_array_equal(distinct, keys)
    numbers = ([[0, 1], [0, 2]], [0], [], [3, 1, 4])
    for of_feature, wanted in zip(found.numbers, numbers, strict=True):
        np.testing.assert_array_equal(of_feature, wanted)
    np.testing.assert_array_equal(found.rows[0], layer.tables["a"].lookup(of_a))
    np.testing.assert_array_equal(found.rows[1], layer.tables["b"].lookup([7]))
    np.testing.assert_array_equal(found.positions[0], [0, 1, 0, 2, 3, 1, 4])
    np.testing.assert_array_equal(found.positions[1], [0])


@pytest.mark.parametrize("numbers", [[0, 2, 1], [1, 0, 2], [0, 1, 1], [0, 1, -1]])
def test_numbers_of_other_keys_are_refused(numbers) -> None:
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"order of first occurrence.*Received"
    ):
        OPS.tfhybrid_sum_gradients(
            numbers=[numbers],
            distinct=[tf.constant([5, 6, 7], tf.int64)],
            gradients=[tf.ones([3, 2])],
            splits=[],
            weights=[],
            combiners=[""],
            weighted=[False],
            engine=0,
            tables=["item"],
            dims=[2],
            table_of=[0],
        )
