"""Lists and candidates on ranks with unequal batches: a rank weighs as much as its samples."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3, variable
from tests.support.list_readers import read
from tests.support.reference import training
from tfhybrid import distributed

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]

STEPS, DIM, RATE = 4, 5, 0.5
CONFIG = tfhybrid.TableConfig(DIM, tfhybrid.initializers.Uniform(-0.5, 0.5))
KEYS = np.array([key for key in range(-10, 10) if key != 0])
ROWS = np.random.default_rng(1).uniform(-0.5, 0.5, (len(KEYS), DIM)).astype(np.float32)


def batch_of(step: int, rank: int) -> tuple[tf.RaggedTensor, np.ndarray]:
    """Returns lists of keys, and a vector per list: unequal numbers on the ranks."""
    rng = np.random.default_rng((step, rank))
    lengths = rng.integers(0, 6, 2 + 3 * rank + step % 2)
    lists = tf.RaggedTensor.from_row_lengths(rng.choice(KEYS, lengths.sum()), lengths)
    return lists, rng.normal(size=(len(lengths), DIM)).astype(np.float32)


def assert_table(layer, reference: training.Table) -> None:
    assert layer.table.rows == len(reference.rows)
    np.testing.assert_allclose(layer.table.lookup(KEYS), reference.lookup(KEYS), atol=2e-6)
    assert len(set(distributed.allgather_object(layer.table.lookup(KEYS).tobytes()))) == 1


def step_of(layer, kernel, loss_of):
    """Returns a step that trains with the mean over the samples of all ranks."""
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(RATE), reduction="mean")

    @tf.function(reduce_retracing=True)
    def step(*batch) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(*batch)
        variables = [*layer.trainable_variables, kernel]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    return step


@needs_keras_3
@pytest.mark.parametrize("kind", ["ragged", "padded", "masked"])
def test_updates_of_lists_are_exact(kind) -> None:
    """Gradient of a key's embedding: that of its list, times the dense weights."""
    options = {} if kind == "ragged" else {"padded": True, "mask_key": 0}
    layer = tfhybrid.layers.Embedding(CONFIG, table="item", **options)
    layer.build()
    kernel = variable(np.ones(DIM, np.float32))

    def loss_of(lists, vectors) -> tf.Tensor:
        pooled = tf.reduce_sum(layer(lists), axis=1)
        return tf.reduce_sum(pooled * vectors * kernel) / tf.cast(tf.shape(vectors)[0], tf.float32)

    step = step_of(layer, kernel, loss_of)
    reference = training.Table("item", CONFIG, training.SGD(RATE))
    weights = np.ones(DIM)
    for number in range(STEPS):
        batches = [batch_of(number, rank) for rank in range(tfhybrid.size())]
        lists, vectors = batches[tfhybrid.rank()]
        step(lists.to_tensor() if kind == "masked" else lists, tf.constant(vectors))
        sums, of_weights, counts = [], np.zeros(DIM), [len(v) for _, v in batches]
        for lists, vectors in batches:
            of_lists = np.repeat(vectors, lists.row_lengths(), axis=0)
            keys = lists.flat_values.numpy()
            sums.append(training.sum_by_key(keys, of_lists * weights / len(vectors)))
            of_weights += (of_lists * reference.lookup(keys)).sum(axis=0)
        reference.update(training.reduce(sums, counts, "mean"))
        weights -= RATE * of_weights / sum(counts)
    assert_table(layer, reference)
    np.testing.assert_allclose(kernel.numpy(), weights, atol=1e-5)


@needs_keras_3
@pytest.mark.parametrize("name", ["GRU", "MultiHeadAttention", "GlobalAveragePooling1D"])
def test_ragged_and_padded_lists_train_the_same_bits(name) -> None:
    """Behind layers of Keras; no list is empty, as their mean is NaN there."""
    specs = {
        "ragged": tf.RaggedTensorSpec([None, None], tf.int64),
        "masked": tf.TensorSpec([None, None], tf.int64),
    }
    weights = {}
    for kind, spec in specs.items():
        keys = keras.Input((None,), dtype="int64", ragged=kind == "ragged")
        layer = tfhybrid.layers.Embedding(CONFIG, table=kind, padded=True, mask_key=0)
        model = keras.Model(keys, read(name, layer(keys)))
        layer.table.load(tfhybrid.checkpoint.ArrayRows(KEYS, ROWS))
        optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1), reduction="mean")
        model.compile(optimizer, "mse")
        batches = []
        for step in range(STEPS):
            lists, _ = batch_of(step, tfhybrid.rank())
            lists = tf.concat([lists, tf.fill([lists.nrows(), 1], KEYS[step])], axis=1)
            ones = tf.ones([lists.nrows(), model.output_shape[-1]])
            batches.append((lists if kind == "ragged" else lists.to_tensor(), ones))
        # Without a static shape, with which TensorFlow multiplies in another order.
        data = tf.data.Dataset.from_generator(
            lambda batches=batches: iter(batches),
            output_signature=(spec, tf.TensorSpec([None, None])),
        )
        model.fit(data, verbose=0)
        dense = [w.numpy() for w in model.trainable_variables if not hasattr(w, "table")]
        weights[kind] = [layer.table.lookup(KEYS), *dense]
        assert len(set(distributed.allgather_object(weights[kind][0].tobytes()))) == 1
    for ragged, masked in zip(*weights.values(), strict=True):
        np.testing.assert_array_equal(ragged, masked)


@pytest.mark.parametrize("shared", [False, True])
def test_updates_of_scores_are_exact(shared) -> None:
    """Ranks have unequal numbers of vectors, and of candidates."""
    layer = tfhybrid.layers.Embedding(CONFIG, table="item")
    layer.build()
    kernel = variable(np.ones(DIM, np.float32))

    def loss_of(vectors, candidates, upstream) -> tf.Tensor:
        scores = layer.score(vectors * kernel, candidates)
        return tf.reduce_sum(scores * upstream) / tf.cast(tf.shape(vectors)[0], tf.float32)

    step = step_of(layer, kernel, loss_of)
    reference = training.Table("item", CONFIG, training.SGD(RATE))
    weights = np.ones(DIM)
    equation = "bc,bd->cd" if shared else "bc,bd->bcd"
    for number in range(STEPS):
        batches = []
        for rank in range(tfhybrid.size()):
            _, vectors = batch_of(number, rank)
            rng = np.random.default_rng((number, rank, 1))
            count = 7 - 2 * rank
            candidates = rng.choice(KEYS, count if shared else (len(vectors), count))
            upstream = rng.normal(size=(len(vectors), count)).astype(np.float32)
            batches.append((vectors, candidates, upstream))
        step(*map(tf.constant, batches[tfhybrid.rank()]))
        sums, of_weights, counts = [], np.zeros(DIM), [len(batch[0]) for batch in batches]
        for vectors, candidates, upstream in batches:
            of_rows = np.einsum(equation, upstream, vectors * weights) / len(vectors)
            sums.append(training.sum_by_key(candidates, of_rows))
            unweighted = np.einsum(equation, upstream, vectors) * reference.lookup(candidates)
            of_weights += unweighted.reshape(-1, DIM).sum(axis=0)
        reference.update(training.reduce(sums, counts, "mean"))
        weights -= RATE * of_weights / sum(counts)
    assert_table(layer, reference)
    np.testing.assert_allclose(kernel.numpy(), weights, atol=1e-5)
