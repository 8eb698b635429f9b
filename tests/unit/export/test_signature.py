"""Names and structures of the inputs of exported models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import export
from tfhybrid.errors import ConfigError
from tfhybrid.export.loaded_graph import load_graph
from tfhybrid.export.signature import Signature, request_names

pytestmark = pytest.mark.usefixtures("job")

# Keys without a row have different embeddings: no key has a row here.
TABLE = tfhybrid.TableConfig(2, combiner="sum", unseen="initial")
# Names of inputs, with those that the page about serving promises.
NAMES = {
    **{"user": "user", "UserId": "UserId", "user id": "user_id", "user.no": "user_no"},
    **{"größe": "gr__e", "1st": "arg_1st", "_x": "arg__x", "x:0": "x_0", "价格": "arg___"},
    **{"for": "arg_for", "self": "arg_self", "None": "arg_None", "inputs": "inputs"},
    **{"args": "args", "kwargs": "kwargs", "name": "name", "cls": "cls", "lambda": "arg_lambda"},
}


def model_of(inputs: Any) -> keras.Model:
    """A model with one output, the sum of an embedding of each input."""
    leaves = tf.nest.flatten(inputs)
    layer = tfhybrid.layers.EmbeddingCollection(
        {f"f{number}": TABLE for number in range(len(leaves))}
    )
    embedded = layer({f"f{number}": leaf for number, leaf in enumerate(leaves)})
    total = keras.layers.Add()(list(embedded.values())) if len(leaves) > 1 else embedded["f0"]
    return keras.Model(inputs, keras.layers.Dense(1)(total))


def signature_of(model: keras.Model, folder: Any) -> Any:
    exported = export.saved_model(model, folder)
    return tf.saved_model.load(str(exported)).signatures["serving_default"]


def test_every_name_can_be_served(tmp_path) -> None:
    model = model_of([keras.Input((1,), dtype="int64", name=name) for name in NAMES])
    serve = signature_of(model, tmp_path)
    keys = {name: np.array([[number], [-number]]) for number, name in enumerate(NAMES)}
    request = {NAMES[name]: tf.constant(values) for name, values in keys.items()}
    np.testing.assert_allclose(
        serve(**request)["output_0"],
        model(list(keys.values()), training=False),
        rtol=1e-5,
        atol=1e-6,
    )
    graph = load_graph(export.serving_graph(model, tmp_path / "graph"))
    assert graph.inputs.keys() == set(NAMES.values())


def test_names_that_become_equal_get_numbers(tmp_path, caplog) -> None:
    names = ["user-id", "user_id", "user id"]
    model = model_of([keras.Input((1,), dtype="int64", name=name) for name in names])
    serve = signature_of(model, tmp_path)
    keys = [tf.constant([[number]], tf.int64) for number in (3, 4, 5)]
    served = serve(user_id_2=keys[0], user_id=keys[1], user_id_3=keys[2])
    np.testing.assert_allclose(served["output_0"], model(keys, training=False), rtol=1e-5)
    assert "the input 'user-id' of the exported model is called 'user_id_2'" in caplog.text


def test_the_parts_of_a_ragged_input_leave_other_inputs_their_names(tmp_path) -> None:
    bags = keras.Input((None,), dtype="int64", name="x", ragged=True)
    splits = keras.Input((1,), dtype="int64", name="x_row_splits")
    model = model_of([splits, bags])
    serve = signature_of(model, tmp_path)
    served = serve(
        x=tf.constant([1, 2, 3], tf.int64),
        x_row_splits_2=tf.constant([0, 2, 3], tf.int64),
        x_row_splits=tf.constant([[7], [8]], tf.int64),
    )
    request = [tf.constant([[7], [8]]), tf.ragged.constant([[1, 2], [3]], tf.int64)]
    expected = model(request, training=False)
    np.testing.assert_allclose(served["output_0"], expected, rtol=1e-5)


@pytest.mark.parametrize("nested", [False, True])
def test_inputs_in_any_structure_are_served(nested, tmp_path) -> None:
    def leaf(name: str) -> keras.KerasTensor:
        return keras.Input((1,), dtype="int64", name=name)

    inputs: Any = {"b": leaf("x"), "a": leaf("y")}
    if nested:
        inputs = {"b": [leaf("x"), leaf("z")], "a": {"c": leaf("y")}}
    model = model_of(inputs)
    serve = signature_of(model, tmp_path)
    numbers = iter(range(1, 9))
    keys = tf.nest.map_structure(lambda _: tf.constant([[next(numbers)]], tf.int64), inputs)
    request = {"x": keys["b"][0], "z": keys["b"][1], "y": keys["a"]["c"]} if nested else keys
    np.testing.assert_allclose(serve(**request)["output_0"], model(keys, training=False), rtol=1e-5)


def test_a_sequential_model_defines_its_input(tmp_path) -> None:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2), table="item")
    inputs = keras.Input((3,), dtype="int64", name="items")
    model = keras.Sequential([inputs, layer, keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    keys = tf.constant([[1, 2, 3], [3, 1, 2]], tf.int64)
    model.fit(keys, tf.ones([2, 1]), verbose=0)
    served = signature_of(model, tmp_path)(items=keys)
    np.testing.assert_allclose(served["output_0"], model(keys, training=False), rtol=1e-5)


def test_a_sparse_input_of_three_axes_has_indices_of_three_numbers() -> None:
    spec = tf.SparseTensorSpec([None, 3, 4], tf.int64)
    model = model_of(keras.Input((1,), dtype="int64", name="x"))
    specs = Signature(model, {"x": spec}).specs
    assert specs["x_indices"].shape == [None, 3]
    assert specs["x_dense_shape"].shape == [3]


def test_a_ragged_input_has_one_ragged_axis() -> None:
    model = model_of(keras.Input((1,), dtype="int64", name="x"))
    specs = Signature(model, {"x": tf.RaggedTensorSpec([None, None, 3], tf.int64)}).specs
    assert specs["x"].shape == [None, 3]
    with pytest.raises(ConfigError, match=r"one ragged dimension, the second.*Received: x"):
        Signature(model, {"x": tf.RaggedTensorSpec([None, None, None], tf.int64)})


def test_addresses_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = model_of(keras.Input((1,), dtype="int64", name="x"))
    for write in (export.saved_model, export.serving_graph):
        with pytest.raises(ConfigError, match=r"local or mounted.*Received: 'gs://bucket/m'"):
            write(model, "gs://bucket/m")
    assert not list(tmp_path.iterdir())


def test_names_are_free() -> None:
    names = ["a b", "a_b_2", "a-b"]
    spelled = request_names(names, [(name, "") for name in names])
    assert [spelled[name, ""] for name in names] == ["a_b", "a_b_2", "a_b_3"]
