"""Requests with bad values are refused with a plain text, which a server can send its client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.serving.publishing import Site
from tests.support.stream.online_site import TABLES, small_model
from tests.support.stream.online_site import Site as OnlineSite
from tfhybrid import export
from tfhybrid.errors import DataError
from tfhybrid.serving import Reader, ServedModel
from tfhybrid.serving.served_inputs import tensors_of

SPECS = {
    "user": tf.TensorSpec([None, 1], tf.int64),
    "day": tf.TensorSpec([None], tf.int32),
    "price": tf.TensorSpec([None], tf.float32),
    "city": tf.TensorSpec([None], tf.string),
    "seen": tf.TensorSpec([None], tf.bool),
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "price",
            np.ma.array([1.0, 2.0], mask=[0, 1]),
            r"'price', index \[1\]: .* a finite number",
        ),
        ("user", [[7], [7.5]], r"'user', index \[1, 0\]: .* number of int64. Received: 7.5"),
        ("user", [[7], [True]], r"\[1, 0\]: expected a whole number of int64. Received: True"),
        ("user", [[7], [None]], r"\[1, 0\]: expected a whole number of int64. Received: None"),
        ("user", [[7], ["7"]], r"\[1, 0\]: expected a whole number of int64. Received: '7'"),
        ("user", [[7], [2**63]], r"\[1, 0\]: .*Received: 9223372036854775808"),
        ("user", np.array([[2.0**53]]), r"below 2\^53 if it is a float64"),
        ("user", np.array([[2.0**24]], np.float32), r"below 2\^53 if it is a float64 \(2\^24"),
        (
            "user",
            [[7], [8, 9]],
            r"'user': expected lists of one length. Received: \[\[7\], \[8, 9\]\]",
        ),
        ("day", [1, 2**31], r"index \[1\]: expected a whole number of int32. Received: 2147483648"),
        ("price", [1.0, float("nan")], r"index \[1\]: expected a finite number of float32"),
        ("price", [1.0, float("-inf")], r"index \[1\]: expected a finite number of float32"),
        ("price", [1.0, 1e39], r"index \[1\]: expected a finite number of float32. Received: 1e"),
        ("price", ["1.0"], r"index \[0\]: expected a finite number of float32. Received: '1.0'"),
        ("city", ["a", 5], r"index \[1\]: expected a string. Received: 5"),
        ("city", ["a", None], r"index \[1\]: expected a string. Received: None"),
        ("seen", ["a"], r"Input 'seen': expected values of bool. Received: "),
    ],
)
def test_bad_values_are_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        tensors_of(SPECS, {name: value}, finite=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user", [[7], [-(2**63)], [2**63 - 1]]),
        ("user", np.array([[7.0]])),
        ("user", np.uint64([[7]])),
        ("user", np.empty((0, 1), np.int64)),
        ("user", tf.constant([[7]], tf.int64)),
        ("day", [1, 2]),
        ("price", [1, 2.5]),
        ("price", np.array([3e38, 5e-324])),
        ("city", ["a", "", "ü", b"\xff"]),
        ("city", np.array(["a", "b"])),
        ("city", tf.constant(["a"])),
        ("seen", [True, False]),
    ],
)
def test_good_values_are_those_of_tensorflow(name: str, value: Any) -> None:
    (tensor,) = tensors_of(SPECS, {name: value}, finite=True).values()
    wanted = tf.convert_to_tensor(value if name == "city" else np.asarray(value))
    assert tensor.dtype == SPECS[name].dtype
    assert tensor.shape == wanted.shape
    assert tf.reduce_all(tensor == tf.cast(wanted, tensor.dtype) if name != "city" else True)
    if name == "city":
        assert tensor.numpy().tolist() == wanted.numpy().tolist()


def test_numbers_that_are_not_finite_pass_on_request() -> None:
    inputs = {"price": [1.0, float("nan"), float("inf")]}
    received = tensors_of(SPECS, inputs, finite=False)["price"].numpy()
    np.testing.assert_array_equal(received, np.float32(inputs["price"]))


def test_a_served_model_refuses_inputs_that_do_not_fit(site: OnlineSite, tmp_path: Path) -> None:
    model = small_model()
    export.serving_graph(model, tmp_path / "graph")
    site.put(40, seed=0)
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=16, wait=False)
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables=TABLES)], verbose=0)
    site.unit.publishers["ads"].publish()
    reader = Reader(tmp_path / "publications", memory=site.settings.memory)
    reader.refresh()
    served = ServedModel(tmp_path / "graph", reader)
    good = {"item": [3, 7], "history": [1, 2], "history_row_splits": [0, 1, 2]}
    assert len(served.predict(good)["output_0"]) == 2
    for change, message in (
        ({"item": [3, 7.5]}, r"Input 'item', index \[1\]"),
        ({"history_row_splits": [0, 1, 3]}, "history_row_splits: expected numbers that begin with"),
        ({"item": [3, 7, 8]}, "must fit the model and each other. Received: "),
    ):
        with pytest.raises(DataError, match=message) as info:
            served.predict({**good, **change})
        assert "\n" not in str(info.value)
    reader.close()


def test_a_reader_refuses_keys_that_are_none(tmp_path: Path, shm_directory: Path) -> None:
    site = Site(tmp_path, shm_directory)
    site.publish()
    reader = site.reader()
    reader.refresh()
    rows = reader.read({"item": np.array([[7], [8]])}).rows["item"]
    np.testing.assert_array_equal(reader.read({"item": np.float64([[7], [8]])}).rows["item"], rows)
    for keys in ([7.5], [True], [2.0**53], ["7"]):
        with pytest.raises(DataError, match="Table 'item': expected keys, whole numbers of int64"):
            reader.read({"item": np.array(keys)})
    for dtype in (np.int64, np.int32, np.float64):
        masked = np.ma.array([7, 8], mask=[False, True], dtype=dtype)
        with pytest.raises(DataError, match=r"Table 'item': expected keys.*Received: masked among"):
            reader.read({"item": masked})
        same = reader.read({"item": np.ma.array([[7], [8]], dtype=dtype)}).rows["item"]
        np.testing.assert_array_equal(same, rows)
    reader.close()
    site.unit.close()


GOOD = {
    "user": [[7], [8]],
    "bag": [1, 2, 3],
    "bag_row_splits": [0, 2, 3],
    "cold": [4, 5],
    "cold_indices": [[0, 0], [1, 1]],
    "cold_dense_shape": [2, 3],
}
BAD_PARTS: list[tuple[dict[str, Any], str]] = [
    *(
        ({"user": user}, r"Shape of tensor user .* is not compatible with expected shape \[\?,1\]")
        for user in ([7, 8], [[7, 8], [9, 10]], [[[7]], [[8]]])
    ),
    *(
        ({"bag_row_splits": splits}, "bag_row_splits: expected numbers that begin with 0")
        for splits in ([0, 2, 9], [0, 1, 2], [1, 2, 3], [0, 3, 1], [0, -1, 3], [])
    ),
    *(
        ({"cold_indices": indices}, "cold_indices: expected an index within cold_dense_shape")
        for indices in ([[0, 0], [7, 1]], [[-1, 0], [1, 1]], [[0, 0], [1, 3]], [[0, 0]])
    ),
    *(
        ({"cold_dense_shape": shape}, "cold_indices: expected an index within cold_dense_shape")
        for shape in ([-2, 3], [2**62, 3], [1, 3])
    ),
]


@pytest.fixture
def signature(job: None, tmp_path: Path) -> Any:
    user = keras.Input((1,), dtype="int64", name="user")
    bag = keras.Input((None,), dtype="int64", name="bag", ragged=True)
    cold = keras.Input((None,), dtype="int64", name="cold", sparse=True)
    table = tfhybrid.TableConfig(2, combiner="sum")
    layer = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(("user", "bag", "cold"), table))
    embedded = layer({"user": user, "bag": bag, "cold": cold})
    model = keras.Model([user, bag, cold], keras.layers.Add()(list(embedded.values())))
    folder = export.saved_model(model, tmp_path)
    return tf.saved_model.load(str(folder)).signatures["serving_default"]


def test_an_exported_signature_answers_invalid_argument(signature: Any) -> None:
    def answer(change: dict[str, Any]) -> np.ndarray:
        named = {name: np.array(value, np.int64) for name, value in {**GOOD, **change}.items()}
        return signature(**{name: tf.constant(value) for name, value in named.items()})["output_0"]

    assert answer({}).shape == (2, 2)
    swapped = {"cold": [5, 4], "cold_indices": [[1, 1], [0, 0]]}
    np.testing.assert_array_equal(answer(swapped), answer({}))
    empty = {"user": np.empty((0, 1)), "bag": [], "bag_row_splits": [0], "cold": []}
    empty |= {"cold_indices": np.empty((0, 2)), "cold_dense_shape": [0, 3]}
    assert answer(empty).shape == (0, 2)
    for change, message in BAD_PARTS:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            answer(change)
