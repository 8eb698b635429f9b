from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.support.reference.training import Table
from tfhybrid.errors import ConfigError, NameTakenError, NotInitializedError

pytestmark = pytest.mark.usefixtures("job")

INT64 = np.iinfo(np.int64)
FOUR = tfhybrid.TableConfig(dim=4)


def initial_rows(name: str, config: tfhybrid.TableConfig, keys: np.ndarray) -> np.ndarray:
    return Table(name, config, optimizer=None).lookup(keys).astype(np.float32)


def test_unseen_keys_read_their_initial_values() -> None:
    configs = {"user": FOUR, "item": tfhybrid.TableConfig(7, "normal")}
    keys = {
        "user": np.array([[0, -1, INT64.min], [INT64.max, 5, 5]]),
        "item": np.array([[3], [4]]),
    }
    embeddings = tfhybrid.layers.EmbeddingCollection(configs)(keys)
    for name, config in configs.items():
        expected = initial_rows(name, config, keys[name])
        np.testing.assert_array_equal(embeddings[name], expected)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 3), (2, 3, 2)])
def test_output_has_the_shape_of_the_keys_and_the_dim(shape) -> None:
    layer = tfhybrid.layers.Embedding(FOUR, name="item")
    output = layer(np.ones(shape, np.int64))
    assert output.shape == (*shape, 4)
    assert tuple(layer.compute_output_shape(shape)) == output.shape


def test_symbolic_output_is_float32_with_the_shape_of_the_keys() -> None:
    inputs = {"user": keras.Input((3,), dtype="int64")}
    output = tfhybrid.layers.EmbeddingCollection({"user": FOUR})(inputs)["user"]
    assert output.shape == (None, 3, 4)
    assert output.dtype == "float32"


def test_int32_keys_are_the_same_keys() -> None:
    layer = tfhybrid.layers.Embedding(FOUR, name="item")
    keys = np.array([[-7, 7]])
    np.testing.assert_array_equal(layer(keys.astype(np.int32)), layer(keys))


@pytest.mark.parametrize("dtype", ["float32", "bool", "uint64"])
def test_keys_of_another_type_are_refused(dtype) -> None:
    layer = tfhybrid.layers.Embedding(FOUR, name="item")
    with pytest.raises(ConfigError, match=f"dtype='int64'.*Received: {dtype}"):
        layer(tf.zeros([2, 1], dtype))


@pytest.mark.parametrize("dtype", ["uint64", "float64", "float32", "int16", "bool"])
def test_inputs_that_cannot_hold_keys_are_refused_before_there_are_data(dtype) -> None:
    kind = "float32" if dtype == "float64" else dtype  # of other floats Keras makes float32
    layer = tfhybrid.layers.Embedding(FOUR, name="item")
    with pytest.raises(ConfigError, match=f"give its Input dtype='int64'.*Received: {kind}"):
        layer(keras.Input((1,), dtype=dtype))


@needs_keras_3
def test_an_input_that_cuts_keys_is_warned_of(caplog) -> None:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2), name="narrow")
    layer(keras.Input((1,), dtype="int64"))
    assert "int32" not in caplog.text
    for _ in range(2):
        layer(keras.Input((1,), dtype="int32"))
    assert caplog.text.count("The Input of feature 'narrow' is int32") == 1


def test_a_missing_feature_is_named() -> None:
    layer = tfhybrid.layers.EmbeddingCollection({"user": FOUR, "item": FOUR})
    with pytest.raises(ConfigError, match=r"\['item'\] are missing. Received: \['other', 'user'\]"):
        layer({"user": np.zeros((1, 1), np.int64), "other": np.zeros((1, 1), np.int64)})


def test_shared_features_read_one_table() -> None:
    layer = tfhybrid.layers.EmbeddingCollection(
        {"item": FOUR, "user": FOUR}, shared={"item": ["clicked", "carted"]}
    )
    keys = np.array([[1, 2]])
    embeddings = layer({"clicked": keys, "carted": keys, "user": keys})
    assert set(layer.tables) == {"item", "user"}
    assert set(embeddings) == {"clicked", "carted", "user"}
    np.testing.assert_array_equal(embeddings["clicked"], embeddings["carted"])
    assert not np.array_equal(embeddings["clicked"], embeddings["user"])


def test_shared_features_may_give_the_recipe() -> None:
    layer = tfhybrid.layers.EmbeddingCollection(
        {"clicked": FOUR, "carted": FOUR}, shared={"item": ["clicked", "carted"]}
    )
    layer.build()
    assert set(layer.tables) == {"item"}


@pytest.mark.parametrize(
    ("configs", "shared", "message"),
    [
        ({}, {}, "at least one feature"),
        ({"user": 8}, {}, "must be a TableConfig. Received: 8"),
        ({}, {"item": ["clicked"]}, "shared table 'item' needs settings under its own name"),
        (
            {"clicked": FOUR, "carted": tfhybrid.TableConfig(5)},
            {"item": ["clicked", "carted"]},
            "shared table 'item' needs settings under its own name",
        ),
        ({"a": FOUR}, {"b": ["a"], "c": ["a"]}, "'a' is in two shared tables"),
    ],
)
def test_contradicting_recipes_are_refused(configs, shared, message) -> None:
    with pytest.raises(ConfigError, match=message):
        tfhybrid.layers.EmbeddingCollection(configs, shared=shared)


def test_a_table_name_is_taken_once() -> None:
    tfhybrid.layers.Embedding(FOUR, name="item").build()
    with pytest.raises(NameTakenError, match="'item'"):
        tfhybrid.layers.Embedding(FOUR, name="item").build()


def test_a_prefix_keeps_two_collections_apart() -> None:
    keys = {"item": np.array([[1]])}
    first = tfhybrid.layers.EmbeddingCollection({"item": FOUR}, prefix="first_")(keys)
    second = tfhybrid.layers.EmbeddingCollection({"item": FOUR}, prefix="second_")(keys)
    assert not np.array_equal(first["item"], second["item"])


def test_building_without_init_says_what_to_call() -> None:
    tfhybrid.shutdown()
    with pytest.raises(NotInitializedError, match=r"tfhybrid\.init\(\)"):
        tfhybrid.layers.Embedding(FOUR, name="item").build()


@pytest.mark.parametrize("dim", [0, -1, 65537, 1.5, "8", True, None])
def test_a_dim_out_of_range_is_refused(dim) -> None:
    with pytest.raises(ConfigError, match=r"from 1 to 65536. Received: dim="):
        tfhybrid.TableConfig(dim)


def test_a_dim_may_come_from_numpy() -> None:
    assert tfhybrid.TableConfig(np.int64(8)) == tfhybrid.TableConfig(8)


def test_an_unknown_initializer_is_refused() -> None:
    with pytest.raises(ConfigError, match="'unifrom'"):
        tfhybrid.TableConfig(8, initializer="unifrom")


def test_summary_counts_no_parameters_for_tables() -> None:
    layer = tfhybrid.layers.Embedding(FOUR, name="item")
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(2)(layer(inputs)))
    assert layer.count_params() == 0
    assert model.count_params() == 4 * 2 + 2
    model.summary(print_fn=lambda *_, **__: None)


def test_subclassed_model_that_does_not_say_how_it_is_built() -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            table = tfhybrid.TableConfig(4)
            self.embedding = tfhybrid.layers.EmbeddingCollection({"user": table})
            self.top = keras.layers.Dense(1)

        def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
            return self.top(self.embedding(inputs)["user"][:, 0])

    model = Model()
    assert model({"user": tf.constant([[3], [5]])}).shape == (2, 1)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1)), "mse")
    model.fit({"user": np.array([[3], [5]])}, np.ones((2, 1)), verbose=0)
    assert model.embedding.tables["user"].rows == 2


def test_a_table_that_is_not_trained_stays_as_it_was_loaded() -> None:
    """Beside one that is, in the same layer."""
    configs = {
        "pretrained": tfhybrid.TableConfig(2, trainable=False),
        "item": tfhybrid.TableConfig(2),
    }
    layer = tfhybrid.layers.EmbeddingCollection(configs)
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in configs}
    x = keras.layers.Concatenate()([keras.layers.Flatten()(e) for e in layer(inputs).values()])
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(tfhybrid.DistributedOptimizer("adam"), "mse")
    vectors = np.array([[1, 2], [3, 4]], np.float32)
    table = layer.tables["pretrained"]
    table.load(tfhybrid.checkpoint.ArrayRows([7, -8], vectors))
    unseen = table.lookup([9])
    keys = np.array([7, -8, 9])
    model.fit(dict.fromkeys(configs, keys), np.ones(3), epochs=2, verbose=0)
    np.testing.assert_array_equal(table.lookup([7, -8, 9]), [*vectors, *unseen])
    assert (table.rows, table.version) == (2, 0)
    assert layer.tables["item"].rows == 3
    trained = {proxy.table.name: proxy.trainable for proxy in layer.weights}
    assert trained == {"pretrained": False, "item": True}
