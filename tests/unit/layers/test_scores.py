"""Scores of candidates against the table of a layer, beside NumPy and a dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid import export
from tfhybrid.errors import ConfigError
from tfhybrid.layers import Embedding

pytestmark = pytest.mark.usefixtures("job")

DIM = 4
CONFIG = tfhybrid.TableConfig(DIM, tfhybrid.initializers.Uniform(-0.5, 0.5), unseen="initial")
RANDOM = np.random.default_rng(5)
VECTORS = RANDOM.normal(size=(2, DIM)).astype(np.float32)
SEQUENCES = RANDOM.normal(size=(2, 3, DIM)).astype(np.float32)
SHARED = np.array([3, -1, 3, 7, 0])
OF_SAMPLES = np.array([[3, -1, 0], [7, 7, 1]])
OF_PLACES = np.arange(12).reshape(2, 3, 2)
CASES = [
    (VECTORS, SHARED, "bd,cd->bc"),
    (VECTORS, OF_SAMPLES, "bd,bcd->bc"),
    (SEQUENCES, SHARED, "bld,cd->blc"),
    (SEQUENCES, OF_PLACES, "bld,blcd->blc"),
]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("gather_on", ["host", "device"])
@pytest.mark.parametrize(("vectors", "candidates", "equation"), CASES)
def test_scores_and_gradients_are_those_of_numpy(
    vectors, candidates, equation, gather_on, *, compiled: bool
) -> None:
    layer = Embedding(tfhybrid.TableConfig(DIM, gather_on=gather_on), table="item")
    layer.build()
    variables = layer.trainable_variables

    def both(vectors):
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            scores = layer.score(vectors, candidates)
            loss = tf.reduce_sum(scores**2)
        return scores, *tape.gradient(loss, [vectors, *variables])

    scores, of_vectors, of_table = (tf.function(both) if compiled else both)(tf.constant(vectors))
    rows = layer.table.lookup(candidates)
    expected = np.einsum(equation, vectors, rows)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    inputs, output = equation.split("->")
    left, right = inputs.split(",")
    np.testing.assert_allclose(
        of_vectors, np.einsum(f"{output},{right}->{left}", 2 * expected, rows), atol=1e-5
    )
    of_rows = np.einsum(f"{output},{left}->{right}", 2 * expected, vectors)
    dense = np.zeros((13, DIM))
    np.add.at(dense, candidates, of_rows)
    found = np.zeros((13, DIM))
    np.add.at(found, of_table.indices.numpy(), of_table.values.numpy())
    np.testing.assert_allclose(found, dense, atol=1e-5)
    assert set(of_table.indices.numpy()) == set(candidates.ravel())
    assert int(of_table.dense_shape[0]) == len(vectors)


@pytest.mark.parametrize("candidates", [SHARED, OF_SAMPLES])
@pytest.mark.parametrize("first", ["history", "score"])
def test_a_step_with_tied_weights_equals_a_dense_step(first, candidates) -> None:
    """The history and the candidates read one table: their gradients meet."""
    layer = Embedding(CONFIG, table="item")
    layer.build()
    keys = np.arange(-1, 9)
    dense = tf.Variable(layer.table.lookup(keys))
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.5))
    history = tf.ragged.constant([[3, 7, 7], [1]], tf.int64)

    def loss_of(rows, scores) -> tf.Tensor:
        if first == "score":  # in the other order on the tape
            early = tf.reduce_sum(scores(tf.constant(VECTORS)))
            return early + tf.reduce_sum(tf.nn.log_softmax(scores(tf.reduce_mean(rows(), 1))))
        return tf.reduce_sum(tf.nn.log_softmax(scores(tf.reduce_mean(rows(), 1))))

    def dense_scores(vectors):
        rows = tf.gather(dense, candidates + 1)
        return tf.einsum("bd,cd->bc" if rows.shape.rank == 2 else "bd,bcd->bc", vectors, rows)

    with tf.GradientTape() as tape:
        loss = loss_of(lambda: layer(history), lambda vectors: layer.score(vectors, candidates))
    variables = layer.trainable_variables
    gradients = tape.gradient(loss, variables)
    assert int(gradients[0].dense_shape[0]) == 2
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    with tf.GradientTape() as tape:
        expected = loss_of(lambda: tf.gather(dense, history + 1), dense_scores)
    dense.assign_sub(0.5 * tf.convert_to_tensor(tape.gradient(expected, dense)))
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    np.testing.assert_allclose(layer.table.lookup(keys), dense, atol=1e-6)


@needs_keras_3
def test_candidates_may_be_padded() -> None:
    layer = Embedding(CONFIG, table="item", padded=True, mask_key=0)
    for candidates in (OF_SAMPLES, SHARED):
        with tf.GradientTape() as tape:
            scores = layer.score(VECTORS, candidates)
            loss = tf.reduce_sum(scores)
        (gradient,) = tape.gradient(loss, layer.trainable_variables)
        padding = np.broadcast_to(candidates == 0, scores.shape)
        assert not scores.numpy()[padding].any()
        assert scores.numpy()[~padding].all()
        assert set(gradient.indices.numpy()) == set(candidates.ravel()) - {0}
        assert int(gradient.dense_shape[0]) == 2


@pytest.mark.parametrize("shared", [False, True])
def test_a_functional_model_scores_and_is_exported(shared, tmp_path) -> None:
    user = keras.Input((1,), dtype="int64", name="user")
    items = Embedding(CONFIG, table="item")
    vectors = keras.layers.Flatten()(Embedding(CONFIG, table="user")(user))
    inputs, candidates = {"user": user}, tf.constant(SHARED)
    if not shared:
        inputs["candidates"] = candidates = keras.Input((3,), dtype="int64", name="candidates")
    scores = items.score(vectors, candidates)
    assert scores.shape == (None, 5 if shared else 3)
    model = keras.Model(inputs, scores)
    assert len(model.trainable_variables) == 2
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1)),
        keras.losses.CategoricalCrossentropy(from_logits=True),
    )
    features = {"user": np.array([[1], [2]]), "candidates": OF_SAMPLES}
    features = {name: features[name] for name in inputs}
    labels = np.eye(scores.shape[-1])[[1, 0]]
    losses = [model.train_on_batch(features, labels) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    outputs = model.predict(features, verbose=0)
    folder = export.saved_model(model, tmp_path)
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    served = signature(**{name: tf.constant(value) for name, value in features.items()})
    np.testing.assert_allclose(served["output_0"], outputs, atol=1e-6)


class Retrieval(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.items = Embedding(CONFIG, table="item")

    def call(self, inputs):
        return self.items.score(tf.reduce_mean(self.items(inputs["history"]), 1), SHARED)


@needs_keras_3
def test_a_subclassed_model_scores() -> None:
    model = Retrieval()
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1)),
        keras.losses.CategoricalCrossentropy(from_logits=True),
    )
    features = {"history": np.array([[1, 2], [7, 7]])}
    labels = np.eye(5)[[1, 4]]
    losses = [model.train_on_batch(features, labels) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    assert model.items.table.rows == len({1, 2, 7, *SHARED})
    scores = model.predict(features, verbose=0)
    rows = model.items.table.lookup(np.array([[1, 2], [7, 7]])).mean(axis=1)
    np.testing.assert_allclose(scores, rows @ model.items.table.lookup(SHARED).T, rtol=1e-4)


def test_keys_without_a_row_score_zero_outside_of_training() -> None:
    items = Embedding(tfhybrid.TableConfig(DIM), table="item")
    vectors = keras.Input((DIM,))
    model = keras.Model(vectors, items.score(vectors, tf.constant(SHARED)))
    assert not model(VECTORS, training=False).numpy().any()
    assert model(VECTORS, training=True).numpy().all()


def test_mixed_precision_scores_in_the_dtype_of_the_layer() -> None:
    layer = Embedding(CONFIG, table="item", dtype="mixed_bfloat16")
    scores = layer.score(VECTORS, SHARED)
    assert scores.dtype == tf.bfloat16
    expected = VECTORS @ layer.table.lookup(SHARED).T
    np.testing.assert_allclose(tf.cast(scores, tf.float32), expected, atol=0.05)


@pytest.mark.parametrize(
    ("vectors", "candidates", "message"),
    [
        (VECTORS, tf.ragged.constant([[1], [2, 3]]), "must be a dense tensor.*to_tensor"),
        (VECTORS, tf.sparse.from_dense(SHARED), "must be a dense tensor"),
        (VECTORS[:, :2], SHARED, r"Vectors must be \[batch, 4\].*Received: vectors \(2, 2\)"),
        (VECTORS[0], SHARED, r"Received: vectors \(4,\)"),
        (SEQUENCES, OF_SAMPLES, r"one list for each vector.*candidates \(2, 3\)"),
        (VECTORS, SHARED.astype(np.float32), "must be int64 or int32"),
    ],
)
def test_what_cannot_be_is_refused(vectors, candidates, message) -> None:
    with pytest.raises(ConfigError, match=message):
        Embedding(CONFIG, table="item").score(vectors, candidates)


@pytest.mark.parametrize("candidates", [OF_SAMPLES[:1], np.tile(OF_SAMPLES, (2, 1))])
def test_each_vector_has_its_own_candidates(candidates) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="one list of candidates for each"):
        Embedding(CONFIG, table="item").score(VECTORS, candidates)
