"""Combiners against TensorFlow's own ops, for every kind of input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")

COMBINERS = ("sum", "mean", "sqrtn")
VOCABULARY, DIM = 12, 5
WIDE = tfhybrid.initializers.Uniform(-0.5, 0.5)


def bags_of(lengths: list[int], seed: int = 1) -> tf.RaggedTensor:
    """Returns random keys, with repetitions within a bag."""
    keys = np.random.default_rng(seed).integers(VOCABULARY, size=sum(lengths))
    return tf.RaggedTensor.from_row_lengths(keys.astype(np.int64), lengths)


def weights_of(bags: tf.RaggedTensor) -> tf.RaggedTensor:
    count = int(tf.size(bags.flat_values))
    weights = np.random.default_rng(2).uniform(0.1, 2.0, count).astype(np.float32)
    return bags.with_flat_values(tf.constant(weights))


def config(combiner: str | None, **options) -> tfhybrid.TableConfig:
    return tfhybrid.TableConfig(DIM, WIDE, combiner=combiner, **options)


def slices_as_dense(slices: tf.IndexedSlices) -> np.ndarray:
    dense = np.zeros((VOCABULARY, DIM), np.float32)
    np.add.at(dense, slices.indices.numpy(), slices.values.numpy())
    return dense


@pytest.mark.parametrize(
    ("combiner", "weighted", "kind"),
    list(itertools.product(COMBINERS, (False, True), ("ragged", "sparse"))),
)
def test_equals_embedding_lookup_sparse(combiner, weighted, kind) -> None:
    bags = bags_of([3, 1, 5, 2, 4])
    weights = weights_of(bags) if weighted else None
    layer = tfhybrid.layers.Embedding(config(combiner), name="word")
    layer.build()
    rows = tf.Variable(layer.table.lookup(np.arange(VOCABULARY)))
    upstream = tf.random.stateless_normal([5, DIM], (1, 2))

    def as_kind(ragged):
        return ragged if ragged is None or kind == "ragged" else ragged.to_sparse()

    with tf.GradientTape() as tape:
        embeddings = layer(as_kind(bags), as_kind(weights))
        loss = tf.reduce_sum(embeddings * upstream)
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    with tf.GradientTape() as tape:
        wanted = tf.nn.embedding_lookup_sparse(
            rows, bags.to_sparse(), weights.to_sparse() if weighted else None, combiner=combiner
        )
        loss = tf.reduce_sum(wanted * upstream)
    np.testing.assert_allclose(embeddings, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        slices_as_dense(gradient), tf.convert_to_tensor(tape.gradient(loss, rows)), atol=2e-6
    )
    assert int(gradient.dense_shape[0]) == 5  # samples


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("lengths", [[0, 2, 0, 0, 3, 0], [0, 0], [0], []])
def test_empty_bags_are_zero_as_in_safe_embedding_lookup_sparse(combiner, lengths) -> None:
    bags = bags_of(lengths)
    layer = tfhybrid.layers.Embedding(config(combiner), name="word")
    with tf.GradientTape() as tape:
        embeddings = layer(bags)
        loss = tf.reduce_sum(embeddings)
    assert embeddings.shape == (len(lengths), DIM)
    if sum(lengths):
        rows = tf.constant(layer.table.lookup(np.arange(VOCABULARY)))
        wanted = tf.nn.safe_embedding_lookup_sparse(rows, bags.to_sparse(), combiner=combiner)
        np.testing.assert_allclose(embeddings, wanted, rtol=1e-6, atol=1e-6)
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    assert set(gradient.indices.numpy()) == set(bags.flat_values.numpy())
    assert np.isfinite(gradient.values).all()


@pytest.mark.parametrize("combiner", COMBINERS)
def test_weights_that_cancel_out_give_zero_and_no_gradient(combiner) -> None:
    layer = tfhybrid.layers.Embedding(config(combiner), name="word")
    keys, weights = tf.constant([[1, 2]], tf.int64), tf.constant([[0.0, 0.0]])
    with tf.GradientTape() as tape:
        embeddings = layer(keys, weights)
        loss = tf.reduce_sum(embeddings)
    assert not embeddings.numpy().any()
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    assert not gradient.values.numpy().any()


def test_dense_keys_are_bags_of_one_length() -> None:
    layer = tfhybrid.layers.EmbeddingCollection(
        {"tags": config("mean"), "one": config("sum"), "int": config("sqrtn")}
    )
    keys = np.arange(6).reshape(2, 3)
    out = layer({"tags": keys, "one": keys[:, 0], "int": keys.astype(np.int32)})
    rows = {name: table.lookup(keys) for name, table in layer.tables.items()}
    np.testing.assert_allclose(out["tags"], rows["tags"].mean(axis=1), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(out["one"], rows["one"][:, 0])
    np.testing.assert_allclose(out["int"], rows["int"].sum(axis=1) / np.sqrt(3), rtol=1e-6)


@pytest.mark.parametrize(
    ("keep", "kept"), [("first", [[1, 2], [4], []]), ("last", [[2, 3], [4], []])]
)
@pytest.mark.parametrize("kind", ["ragged", "sparse", "dense"])
def test_what_is_longer_than_the_maximum_is_as_if_it_were_not_there(keep, kept, kind) -> None:
    layer = tfhybrid.layers.Embedding(config("sum", max_length=2, keep=keep), name="word")
    bags = tf.ragged.constant([[1, 2, 3], [4], []], tf.int64)
    if kind == "sparse":
        bags = bags.to_sparse()
    if kind == "dense":
        bags, kept = tf.constant([[1, 2, 3]], tf.int64), kept[:1]
    with tf.GradientTape() as tape:
        embeddings = layer(bags)
        loss = tf.reduce_sum(embeddings)
    for bag, embedding in zip(kept, embeddings.numpy(), strict=True):
        wanted = layer.table.lookup(np.array(bag, np.int64)).sum(axis=0) if bag else np.zeros(DIM)
        np.testing.assert_allclose(embedding, wanted, rtol=1e-6, atol=1e-7)
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    assert sorted(gradient.indices.numpy()) == sorted(key for bag in kept for key in bag)


def test_ragged_keys_without_a_combiner_give_ragged_embeddings() -> None:
    layer = tfhybrid.layers.Embedding(config(None, max_length=2), name="word")
    keys = tf.ragged.constant([[1, 2, 3], [], [3]], tf.int64)
    embeddings = layer(keys)
    assert isinstance(embeddings, tf.RaggedTensor)
    assert embeddings.row_lengths().numpy().tolist() == [2, 0, 1]
    np.testing.assert_array_equal(embeddings.flat_values, layer.table.lookup([1, 2, 3]))


def test_features_of_one_table_have_combiners_of_their_own() -> None:
    layer = tfhybrid.layers.EmbeddingCollection(
        {"clicked": config("mean", max_length=3), "item": config(None)},
        shared={"items": ["clicked", "item"]},
    )
    out = layer({"clicked": bags_of([2, 0]), "item": np.array([[7], [7]])})
    assert out["clicked"].shape == (2, DIM)
    assert out["item"].shape == (2, 1, DIM)
    assert list(layer.tables) == ["items"]


def test_bags_lie_beside_other_features() -> None:
    parts = {"user": config(None), "tags": config("sum"), "queries": config("mean")}
    keys = {"user": np.array([[1], [2]]), "tags": bags_of([2, 0]), "queries": bags_of([1, 3])}
    layer = tfhybrid.layers.EmbeddingCollection(parts, concatenate=True)
    layer.build()
    rows = {
        name: tf.Variable(table.lookup(np.arange(VOCABULARY)))
        for name, table in layer.tables.items()
    }
    upstream = tf.random.stateless_normal([2, 3 * DIM], (3, 4))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((output := layer(keys)) * upstream)
    gradients = tape.gradient(loss, layer.trainable_variables)
    with tf.GradientTape() as tape:
        of_user = tf.gather(rows["user"], keys["user"][:, 0])
        of_tags = tf.nn.safe_embedding_lookup_sparse(
            rows["tags"], keys["tags"].to_sparse(), combiner="sum"
        )
        of_queries = tf.nn.embedding_lookup_sparse(
            rows["queries"], keys["queries"].to_sparse(), None, combiner="mean"
        )
        wanted = tf.concat([of_user, of_tags, of_queries], axis=1)
        loss = tf.reduce_sum(wanted * upstream)
    np.testing.assert_allclose(output, wanted, rtol=1e-6, atol=1e-6)
    wanted_gradients = tape.gradient(loss, rows)
    for variable, found in zip(layer.trainable_variables, gradients, strict=True):
        dense = wanted_gradients[variable.table.name]
        np.testing.assert_allclose(slices_as_dense(found), tf.convert_to_tensor(dense), atol=2e-6)


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_trains_in_a_functional_model(kind) -> None:
    inputs = {
        "user": keras.Input((1,), dtype="int64", name="user"),
        "clicked": keras.Input((None,), dtype="int64", name="clicked", **{kind: True}),
    }
    layer = tfhybrid.layers.EmbeddingCollection({"user": config(None), "clicked": config("mean")})
    embedded = layer(inputs)
    assert embedded["clicked"].shape == (None, DIM)
    x = keras.layers.Concatenate()([keras.layers.Flatten()(embedded["user"]), embedded["clicked"]])
    model = keras.Model(inputs, keras.layers.Dense(1, use_bias=False)(x))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.5)), "mse")

    def batch(lengths):
        bags = bags_of(lengths)
        bags = bags if kind == "ragged" else bags.to_sparse()
        return {"user": tf.zeros([len(lengths), 1], tf.int64), "clicked": bags}

    data = tf.data.Dataset.from_generator(
        lambda: ((batch(lengths), tf.ones([len(lengths), 1])) for lengths in ([2, 0, 5], [1, 4])),
        output_signature=(
            {
                "user": tf.TensorSpec((None, 1), tf.int64),
                "clicked": tf.RaggedTensorSpec((None, None), tf.int64)
                if kind == "ragged"
                else tf.SparseTensorSpec((None, None), tf.int64),
            },
            tf.TensorSpec((None, 1)),
        ),
    )
    losses = model.fit(data, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.1 * losses[0]
    assert model.predict(data, verbose=0).shape == (5, 1)
    assert layer.tables["clicked"].rows == len(
        set(bags_of([2, 0, 5]).flat_values.numpy()) | set(bags_of([1, 4]).flat_values.numpy())
    )


@pytest.mark.parametrize(
    ("options", "keys", "weights", "told"),
    [
        ({}, tf.ragged.constant([[1]], tf.int64).to_sparse(), None, "A SparseTensor of feature"),
        ({}, np.array([[1]]), np.array([[1.0]]), "Weights of feature 'word' need a combiner"),
        (
            {"combiner": "sum"},
            np.zeros((2, 3, 4), np.int64),
            None,
            r"must be \[batch, length\].*Received",
        ),
        ({"combiner": "sum"}, tf.constant([["a"]]), None, r"string_keys.*Received: string"),
    ],
)
def test_what_cannot_be_is_refused(options, keys, weights, told) -> None:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(DIM, **options), name="word")
    with pytest.raises(ConfigError, match=told):
        layer(keys, weights)


def test_weights_of_other_keys_are_refused() -> None:
    layer = tfhybrid.layers.Embedding(config("sum"), name="word")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"Feature 'word' must have one weight per key"
    ):
        layer(np.array([[1, 2]]), np.ones((1, 3), np.float32))
    collection = tfhybrid.layers.EmbeddingCollection({"tags": config("sum")})
    with pytest.raises(
        ConfigError, match=r"Weights must belong to the features.*Received: \['tag'\]"
    ):
        collection({"tags": np.array([[1]])}, {"tag": np.array([[1.0]])})


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("max_length", [None, 2])
def test_weights_are_of_the_keys_in_their_place(in_graph, max_length) -> None:
    layer = tfhybrid.layers.Embedding(config("sum", max_length=max_length), name="item")
    weights = tf.ragged.constant([[1.0], [2.0, 3.0]])
    call = tf.function(layer) if in_graph else layer
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"Feature .*item.* must have one weight per key"
    ):
        call(tf.ragged.constant([[1, 2], [3]], tf.int64), weights=weights)


def test_ragged_features_are_not_put_side_by_side() -> None:
    layer = tfhybrid.layers.EmbeddingCollection({"tags": config(None)}, concatenate=True)
    with pytest.raises(ConfigError, match=r"need a combiner.*Received: \['tags'\]"):
        layer({"tags": bags_of([2])})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"combiner": "max"},
            "combiner must be 'sum', 'mean', 'sqrtn' or None. Received: combiner='max'",
        ),
        ({"max_length": 0}, "max_length must be a number of keys.*Received: max_length=0"),
        ({"keep": "middle"}, "keep must be 'first' or 'last'. Received: keep='middle'"),
    ],
)
def test_recipes_that_cannot_be_are_refused(options, told) -> None:
    with pytest.raises(ConfigError, match=told):
        tfhybrid.TableConfig(4, **options)
