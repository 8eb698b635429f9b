"""Lookup tables of TensorFlow in exported models, wherever a layer or model holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import export
from tfhybrid.errors import ExportError
from tfhybrid.export.loaded_graph import load_graph
from tfhybrid.export.vocabularies import vocabularies

pytestmark = pytest.mark.usefixtures("job")

WORDS = tf.constant([["a"], ["b"], ["new"]])


def string_lookup() -> keras.layers.StringLookup:
    return keras.layers.StringLookup(vocabulary=["a", "b"])


def static_table() -> tf.lookup.StaticHashTable:
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant(["a", "b"]), tf.constant([5, 6], tf.int64)
    )
    return tf.lookup.StaticHashTable(initializer, -1)


def vocabulary_table() -> tf.lookup.StaticVocabularyTable:
    initializer = tf.lookup.KeyValueTensorInitializer(
        tf.constant(["a", "b"]), tf.constant([0, 1], tf.int64)
    )
    return tf.lookup.StaticVocabularyTable(initializer, num_oov_buckets=3)


class Module(tf.Module):
    """A module of TensorFlow with a table in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [static_table()]


class Plain:
    """An object that neither Keras nor TensorFlow tracks."""

    def __init__(self) -> None:
        self.table = static_table()


class Keys(keras.layers.Layer):
    """A layer that looks words up in what an attribute holds."""

    def __init__(self, held: Any, find: Callable[[Any], Any]) -> None:
        super().__init__()
        self.held = held
        self.find = find

    def call(self, words: Any) -> Any:
        found = self.find(self.held)
        return found(words) if isinstance(found, keras.layers.Layer) else found.lookup(words)

    def compute_output_spec(self, words: Any) -> Any:
        return keras.KerasTensor(words.shape, "int64")


class Nested(keras.Model):
    """A subclassed model in a subclassed model."""

    def __init__(self, keys: keras.layers.Layer) -> None:
        super().__init__()
        self.parts = {"keys": [keys]}

    def call(self, words: Any) -> Any:
        return self.parts["keys"][0](words)


PLACES: dict[str, Callable[[], tuple[Any, Callable[[Any], Any]]]] = {
    "attribute": lambda: (string_lookup(), lambda held: held),
    "list": lambda: ([string_lookup()], lambda held: held[0]),
    "tuple": lambda: ((string_lookup(),), lambda held: held[0]),
    "dict": lambda: ({"city": string_lookup()}, lambda held: held["city"]),
    "nested": lambda: ({"city": [{"a": string_lookup()}]}, lambda held: held["city"][0]["a"]),
    "table": lambda: (static_table(), lambda held: held),
    "table in a list": lambda: ([static_table()], lambda held: held[0]),
    "table in a dict": lambda: ({"city": static_table()}, lambda held: held["city"]),
    "vocabulary table": lambda: (vocabulary_table(), lambda held: held),
    "vocabulary table in a list": lambda: ([vocabulary_table()], lambda held: held[0]),
    "module": lambda: (Module(), lambda held: held.tables[0]),
}


class Subclassed(keras.Model):
    """Embeddings of words, in a subclassed model."""

    def __init__(self, keys: keras.layers.Layer) -> None:
        super().__init__()
        self.keys = keys
        self.embedding = tfhybrid.layers.Embedding(tfhybrid.TableConfig(3), table="word")
        self.dense = keras.layers.Dense(1)

    def call(self, words: Any) -> Any:
        return self.dense(self.embedding(self.keys(words))[:, 0])


def functional(keys: keras.layers.Layer) -> keras.Model:
    words = keras.Input((1,), dtype="string", name="word")
    embedding = tfhybrid.layers.Embedding(tfhybrid.TableConfig(3), table="word")
    embedded = keras.layers.Flatten()(embedding(keys(words)))
    return keras.Model(words, keras.layers.Dense(1)(embedded))


def trained(model: keras.Model, words: tf.Tensor = WORDS) -> keras.Model:
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    batch = (words, tf.ones([len(words), 1]))
    model.fit(tf.data.Dataset.from_tensors(batch), epochs=2, verbose=0)
    return model


class Stack(keras.layers.Layer):
    """A layer that counts its layers, as some layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = 2
        self.keys = string_lookup()


def test_layers_may_be_a_number() -> None:
    assert len(vocabularies(Stack())) == 1


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *(("functional", place) for place in PLACES),
        *((kind, place) for kind in ("subclassed", "nested") for place in ("dict", "module")),
    ],
)
def test_a_served_model_has_its_vocabulary(kind, place, tmp_path) -> None:
    keys: keras.layers.Layer = Keys(*PLACES[place]())
    if kind == "functional":
        model = trained(functional(keys))
    else:
        model = trained(Subclassed(keys if kind == "subclassed" else Nested(keys)))
    inputs = None if kind == "functional" else tf.TensorSpec([None, 1], tf.string, name="word")
    folder = export.saved_model(model, tmp_path, inputs=inputs)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](word=WORDS)
    np.testing.assert_allclose(served["output_0"], model(WORDS, training=False), rtol=1e-6)


def test_a_served_model_splits_texts(tmp_path) -> None:
    vectorize = keras.layers.TextVectorization(output_sequence_length=4)
    vectorize.adapt(["to be or not", "to be"])
    texts = keras.Input((1,), dtype="string", name="text")
    embedding = tfhybrid.layers.Embedding(tfhybrid.TableConfig(3), table="word")
    embedded = keras.layers.GlobalAveragePooling1D()(embedding(vectorize(texts)))
    words = tf.constant([["be to"], ["or never"]])
    model = trained(keras.Model(texts, keras.layers.Dense(1)(embedded)), words)
    folder = export.saved_model(model, tmp_path)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](text=words)
    np.testing.assert_allclose(served["output_0"], model(words, training=False), rtol=1e-6)
    graph = load_graph(export.serving_graph(model, tmp_path / "graph"))
    np.testing.assert_array_equal(graph.keys(text=words)["keys_0"], vectorize(words))


def test_a_table_that_no_layer_holds_is_named_as_the_cause(tmp_path) -> None:
    model = trained(functional(Keys(Plain(), lambda held: held.table)))
    with pytest.raises(ExportError, match="assign it to one, or to a list or dict there"):
        export.saved_model(model, tmp_path)


def test_a_layer_of_ones_own_serves_the_export_in_keras(tmp_path) -> None:
    """As the page about serving says, in place of `keras.layers.TFSMLayer`."""
    model = trained(functional(string_lookup()))
    folder = export.saved_model(model, tmp_path)

    class Served(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.module = tf.saved_model.load(str(folder))

        def call(self, words: tf.Tensor) -> tf.Tensor:
            return self.module.signatures["serving_default"](word=words)["output_0"]

        def compute_output_spec(self, words: Any) -> Any:
            return keras.KerasTensor((words.shape[0], 1), "float32")

    words = keras.Input((1,), dtype="string")
    served = keras.Model(words, Served()(words))
    np.testing.assert_allclose(
        served.predict(WORDS, verbose=0), model(WORDS, training=False), rtol=1e-6
    )
