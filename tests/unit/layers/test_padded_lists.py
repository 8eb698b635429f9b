"""Lists as dense tensors with a mask: every kind of input, and the Keras layers behind them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.support.list_readers import READERS, read
from tfhybrid import export, initializers
from tfhybrid.errors import ConfigError
from tfhybrid.layers import Embedding

pytestmark = [pytest.mark.usefixtures("job"), needs_keras_3]

DIM = 4
CONFIG = tfhybrid.TableConfig(DIM, tfhybrid.initializers.Uniform(-0.5, 0.5), unseen="initial")
LISTS = [[5, 2, -7, 5], [], [2], [9, 9, 1]]
RAGGED = tf.ragged.constant(LISTS, tf.int64)
DENSE = RAGGED.to_tensor()  # with key 0
KINDS = {
    "ragged": RAGGED,
    "sparse": tf.SparseTensor(  # not in row-major order
        [[3, 1], [0, 0], [0, 1], [3, 2], [0, 2], [0, 3], [2, 0], [3, 0]],
        [9, 5, 2, 1, -7, 5, 2, 9],
        [4, 4],
    ),
    "dense": DENSE,
    "int32": tf.cast(DENSE, tf.int32),
}


def layer_of(config: tfhybrid.TableConfig = CONFIG, **options) -> Embedding:
    return Embedding(config, table="item", padded=True, mask_key=0, **options)


def zeros_where_masked(layer: Embedding, keys: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return layer.table.lookup(keys) * mask[..., np.newaxis]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("gather_on", ["host", "device"])
@pytest.mark.parametrize("kind", KINDS)
def test_masked_places_read_zeros_and_are_not_trained(kind, gather_on, *, compiled: bool) -> None:
    layer = layer_of(tfhybrid.TableConfig(DIM, CONFIG.initializer, gather_on=gather_on))

    def both():
        with tf.GradientTape() as tape:
            embeddings = layer(KINDS[kind])
            loss = tf.reduce_sum(embeddings * 2.0)
        (gradient,) = tape.gradient(loss, layer.trainable_variables)
        return embeddings, layer.compute_mask(KINDS[kind]), gradient

    embeddings, mask, gradient = (tf.function(both) if compiled else both)()
    expected = DENSE.numpy() != 0
    np.testing.assert_array_equal(mask, expected)
    np.testing.assert_array_equal(embeddings, zeros_where_masked(layer, DENSE.numpy(), expected))
    sums = gradient.values.numpy()[:, 0].tolist()
    by_key = dict(zip(gradient.indices.numpy().tolist(), sums, strict=True))
    assert by_key == {5: 4.0, 2: 4.0, -7: 2.0, 9: 4.0, 1: 2.0}
    assert int(gradient.dense_shape[0]) == len(LISTS)
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1))
    optimizer.apply_gradients([(gradient, layer.trainable_variables[0])])
    assert layer.table.rows == 5  # none for the padding key
    np.testing.assert_array_equal(layer(KINDS[kind])._keras_mask, expected)


def test_without_a_mask_key_every_key_counts() -> None:
    layer = Embedding(CONFIG, table="item", padded=True)
    embeddings = layer(DENSE)
    assert embeddings._keras_mask.numpy().all()
    np.testing.assert_array_equal(embeddings, layer.table.lookup(DENSE.numpy()))
    zeros = layer(tf.ragged.constant([[0], [0, 4]], tf.int64))
    assert zeros._keras_mask.numpy().tolist() == [[True, False], [True, True]]
    np.testing.assert_array_equal(zeros[0, 0], layer.table.lookup(np.array(0)))


@pytest.mark.parametrize("key", [-1, 2**63 - 1, -(2**63)])
def test_any_key_may_be_masked(key) -> None:
    layer = Embedding(CONFIG, table="item", padded=True, mask_key=key)
    keys = np.array([[0, key, 3]])
    np.testing.assert_array_equal(layer(keys)._keras_mask, [[True, False, True]])
    assert not layer(keys)[0, 1].numpy().any()


@pytest.mark.parametrize(
    ("keep", "dense"),
    [
        ("first", [[5, 2, 0, 0], [0] * 4, [2, 0, 0, 0], [9, 9, 0, 0]]),
        ("last", [[0, 0, -7, 5], [0] * 4, [2, 0, 0, 0], [0, 9, 1, 0]]),
    ],
)
@pytest.mark.parametrize("kind", ["ragged", "sparse", "dense"])
def test_the_same_keys_are_cut_from_lists_of_every_kind(kind, keep, dense) -> None:
    layer = layer_of(
        tfhybrid.TableConfig(DIM, CONFIG.initializer, max_length=2, keep=keep, unseen="initial")
    )
    embeddings = layer(KINDS[kind])
    expected = np.array(dense)[:, : embeddings.shape[1]]
    np.testing.assert_array_equal(embeddings._keras_mask, expected != 0)
    np.testing.assert_array_equal(embeddings, zeros_where_masked(layer, expected, expected != 0))


@pytest.mark.parametrize(
    ("keep", "keys", "masked"),
    [("first", [[0, 5, 6, 7]], [[0, 5, 6, 0]]), ("last", [[5, 6, 7, 0]], [[0, 6, 7, 0]])],
)
def test_masked_keys_do_not_count_for_the_length_of_lists(keep, keys, masked) -> None:
    layer = layer_of(tfhybrid.TableConfig(DIM, CONFIG.initializer, max_length=2, keep=keep))
    expected = np.array(masked) != 0
    np.testing.assert_array_equal(layer(tf.constant(keys, tf.int64))._keras_mask, expected)
    ragged = tf.ragged.constant(keys, tf.int64)
    np.testing.assert_array_equal(layer(ragged)._keras_mask, expected)


@pytest.mark.parametrize(
    "keys", [[3, 0, 4], [[[3, 0], [0, 0]], [[1, 2], [0, 3]]], np.zeros((0, 3), np.int64)]
)
def test_keys_have_any_shape(keys) -> None:
    layer = layer_of()
    keys = np.array(keys)
    embeddings = layer(tf.constant(keys, tf.int64))
    np.testing.assert_array_equal(embeddings, zeros_where_masked(layer, keys, keys != 0))


def test_lists_of_lists_are_padded_in_both_axes() -> None:
    layer = layer_of()
    nested = tf.ragged.constant([[[1, 2], [3]], [], [[], [4]]], dtype=tf.int64)
    keys = nested.to_tensor().numpy()
    assert keys.shape == (3, 2, 2)
    np.testing.assert_array_equal(layer(nested), zeros_where_masked(layer, keys, keys != 0))


def model_of(name: str, *, ragged: bool = False, **options) -> keras.Model:
    keys = keras.Input((None,), dtype="int64", name="item", ragged=ragged)
    return keras.Model(keys, read(name, layer_of(**options)(keys)))


@pytest.mark.parametrize("name", READERS)
def test_models_take_lists_of_every_kind_to_the_bit(name) -> None:
    """What comes decides, not the kind of the Input. Keras itself makes sparse lists dense here."""
    model = model_of(name, ragged=True)
    outputs = model(RAGGED, training=False).numpy()
    for lists in (DENSE, tf.sparse.from_dense(DENSE)):
        np.testing.assert_array_equal(model(lists, training=False), outputs)
    filled = [row for row, keys in enumerate(LISTS) if keys]
    alone = [model(tf.constant([LISTS[row]], tf.int64), training=False)[0] for row in filled]
    np.testing.assert_allclose(outputs[filled], np.array(alone), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["GRU", "LSTM", "GlobalAveragePooling1D"])
def test_more_padding_changes_no_bit(name) -> None:
    model = model_of(name)
    longer = tf.pad(DENSE, [[0, 0], [0, 9]])
    np.testing.assert_array_equal(model(longer, training=False), model(DENSE, training=False))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("ragged", [False, True])
def test_exported_models_have_the_bits_of_the_model(name, ragged, tmp_path) -> None:
    model = model_of(name, ragged=ragged)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    lists = tf.gather(RAGGED if ragged else DENSE, [0, 2, 3])
    model.train_on_batch(lists, np.ones((3, model.output_shape[-1]), np.float32))
    # With static shapes TensorFlow rounds otherwise on some processors; an export has none.
    spec = (tf.RaggedTensorSpec if ragged else tf.TensorSpec)([None, None], tf.int64)
    expected = tf.function(lambda keys: model(keys, training=False), input_signature=[spec])(lists)
    folder = export.saved_model(model, tmp_path)
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    parts = {"item": lists}
    if ragged:
        parts = {"item": lists.flat_values, "item_row_splits": lists.row_splits}
    np.testing.assert_array_equal(signature(**parts)["output_0"], expected)


def empty_row_of(make) -> np.ndarray:
    """Returns what a layer whose weights are all 1 makes of the empty one of two lists."""
    keys = keras.Input((None,), dtype="int64")
    embedded = layer_of()(keys)
    model = keras.Model(keys, make(embedded))
    for layer in model.layers:
        if not isinstance(layer, Embedding):
            layer.set_weights([np.ones_like(weight) for weight in layer.get_weights()])
    return model(DENSE[1:3], training=False)[0].numpy()


def test_an_empty_list_in_layers_of_keras() -> None:
    """What docs/keras.md says about them."""
    layers = keras.layers
    assert not empty_row_of(layers.GRU(3)).any()
    tfhybrid.shutdown()
    tfhybrid.init()
    assert not empty_row_of(layers.Bidirectional(layers.LSTM(3))).any()
    tfhybrid.shutdown()
    tfhybrid.init()
    assert np.isnan(empty_row_of(layers.GlobalAveragePooling1D())).all()
    tfhybrid.shutdown()
    tfhybrid.init()
    attention = layers.MultiHeadAttention(2, 3)
    places = empty_row_of(lambda embedded: attention(embedded, embedded))
    # The mean of the padding: its zeros plus biases of 1, 2 x 3 of which meet weights of 1.
    np.testing.assert_allclose(places, np.full((4, DIM), 7.0))
    tfhybrid.shutdown()
    tfhybrid.init()
    bags = Embedding(tfhybrid.TableConfig(DIM, combiner="mean"), table="item")
    assert not bags(RAGGED)[1].numpy().any()


def test_hashed_lists_stay_lists() -> None:
    """Keras's Hashing does not say that its output is ragged."""
    words = keras.Input((None,), dtype="string", ragged=True)
    keys = keras.layers.Hashing(1000, mask_value="")(words)
    model = keras.Model(words, keras.layers.GRU(3)(layer_of()(keys)))
    output = model(tf.ragged.constant([["a", "b", "c"], ["d"]]))
    assert output.shape == (2, 3)
    assert np.isfinite(output).all()


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.items = layer_of()
        self.gru = keras.layers.GRU(3)
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(self.gru(self.items(inputs)))


def test_a_subclassed_model_has_the_mask() -> None:
    model = Subclassed()
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    data = tf.data.Dataset.from_tensors((RAGGED, np.ones((4, 1), np.float32)))
    model.fit(data, verbose=0)
    assert model.items.table.rows == 5
    padded = model.predict(tf.pad(DENSE, [[0, 0], [0, 3]]), verbose=0)
    np.testing.assert_array_equal(padded, model.predict(DENSE, verbose=0))


def test_a_sequential_model_trains_after_one_replaced_line() -> None:
    """The same weights, bits and losses as with Keras's own layer."""
    ours = Embedding.like_keras(10, DIM, mask_zero=True)
    assert ours.table_names == {}
    assert ours.name.startswith("embedding")
    keys = np.where(DENSE.numpy() < 0, 8, DENSE.numpy())
    rows = np.random.default_rng(2).uniform(-1, 1, (10, DIM)).astype(np.float32)
    plain = keras.layers.Embedding(
        10, DIM, mask_zero=True, embeddings_initializer=keras.initializers.Constant(rows)
    )
    ours.build()
    ours.table.load(tfhybrid.checkpoint.ArrayRows(np.arange(10), rows))
    losses = []
    for layer, wrap in ((ours, tfhybrid.DistributedOptimizer), (plain, lambda o: o)):
        seed = keras.initializers.GlorotUniform(3)
        gru = keras.layers.GRU(3, kernel_initializer=seed, recurrent_initializer=seed)
        model = keras.Sequential([layer, gru])
        model.compile(wrap(keras.optimizers.SGD(0.5)), "mse")
        losses.append([model.train_on_batch(keys, np.ones((4, 3))) for _ in range(4)])
    np.testing.assert_allclose(*losses, rtol=1e-6)
    np.testing.assert_allclose(
        ours.table.lookup(np.arange(1, 10)), plain.get_weights()[0][1:], atol=1e-6
    )
    np.testing.assert_array_equal(ours.table.lookup(np.array(0)), rows[0])


def test_floats_of_keras_are_keys_if_they_are_exact() -> None:
    layer = Embedding.like_keras(10, DIM, mask_zero=True, name="word")
    keys = keras.Input((2,))  # float32, as Keras has it unless it is told otherwise
    model = keras.Model(keys, layer(keys))
    outputs = model.predict(np.array([[3, 0], [-2, 2**24 - 1]]), verbose=0)
    assert not outputs[0, 1].any()
    np.testing.assert_array_equal(layer(np.array([[3, 0]]))._keras_mask, [[True, False]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be integers below 2\*\*24"):
        model.predict(np.array([[3, 2**24 + 1]]), verbose=0)


def test_arguments_of_keras_have_counterparts() -> None:
    regularizer = keras.regularizers.L2(0.1)
    layer = Embedding.like_keras(
        20, 3, "ones", regularizer, name="words", table="word", trainable=False
    )
    layer.build()
    assert (layer.name, layer.table.name, layer.table.dim) == ("words", "word", 3)
    assert layer.mask_key is None
    assert not layer.trainable_variables
    np.testing.assert_array_equal(layer.table.lookup(np.array([4])), np.ones((1, 3)))
    first, second = Embedding.like_keras(5, 2), Embedding.like_keras(5, 2)
    assert first.features != second.features


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("he_uniform", initializers.Uniform(-0.5, 0.5)),
        (keras.initializers.RandomNormal(0.5, 0.2, seed=3), initializers.Normal(0.5, 0.2)),
        (initializers.Constant(2.0), initializers.Constant(2.0)),
    ],
)
def test_initializers_are_those_of_a_layer_of_these_sizes(given, expected) -> None:
    keys = np.arange(-9, 9)
    layer = Embedding.like_keras(24, DIM, given, table="word")
    layer.build()
    rows = layer.table.lookup(keys)
    tfhybrid.shutdown()
    tfhybrid.init()
    reference = Embedding(tfhybrid.TableConfig(DIM, expected), table="word")
    reference.build()
    np.testing.assert_allclose(rows, reference.table.lookup(keys), rtol=1e-6)


def test_mixed_precision_keeps_the_mask() -> None:
    layer = layer_of(dtype="mixed_bfloat16")
    embeddings = layer(DENSE)
    assert embeddings.dtype == tf.bfloat16
    np.testing.assert_array_equal(embeddings._keras_mask, DENSE != 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Embedding(CONFIG, table="a", mask_key=0), "mask_key needs padded=True"),
        (
            lambda: Embedding(CONFIG, table="a", padded=True, mask_key=2**63),
            "mask_key must be an int64. Received: mask_key=9223372036854775808",
        ),
        (lambda: Embedding(CONFIG, table="a", padded=True, mask_key=True), "must be an int64"),
        (lambda: Embedding(CONFIG, table="a", padded=True, mask_key="0"), "must be an int64"),
        (
            lambda: Embedding(tfhybrid.TableConfig(2, combiner="sum"), table="a", padded=True),
            "nothing to pad.*Received: combiner='sum'",
        ),
        (lambda: Embedding.like_keras(5, 2, weights=[0]), "does not support.*weights"),
        (lambda: Embedding.like_keras(-5, 2), "expected_rows must be"),
        (lambda: layer_of()(tf.constant(3, tf.int64)), r"must be \[batch, ...\]"),
        (lambda: layer_of()(tf.constant([["a"]])), "must be int64 or int32"),
        (lambda: layer_of()(RAGGED, weights=RAGGED), "need a combiner"),
    ],
)
def test_what_cannot_be_is_refused(make, message) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
