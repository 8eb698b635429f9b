"""Drawn rows through data nodes, layers, exported models and served models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.slow_judge import BAD
from tests.support.ways_in.drawn_rows import (
    SIZES,
    VALUES,
    Row,
    drawn,
    hash_one,
    is_bad,
    verdicts_of,
)
from tests.support.ways_in.ways import WAYS
from tfhybrid import export
from tfhybrid.checkpoint import ArrayRows
from tfhybrid.data import Ragged
from tfhybrid.data_nodes.dense_half import from_arrays, to_arrays
from tfhybrid.data_nodes.elements import Leaf, flatten
from tfhybrid.data_nodes.splitting import Declared, split
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.serving.served_inputs import tensors_of
from tfhybrid.values import Column

NAN = float("nan")
USER, TAGS, CITY = Column("user"), Column("tags", length=None), Column("city", "string")
PRICE = Column("price", "number", finite=False, missing=NAN)  # a tensor's numbers pass


def splits_of(rows: Sequence[list[Any]]) -> np.ndarray:
    return np.cumsum([0, *map(len, rows)])


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_data_nodes(seed: int, rows: int) -> None:
    """A batch is split into keys of three owners and all else; both together are the batch."""
    table, types = drawn(WAYS["data nodes"], [USER, TAGS, PRICE], seed, rows)
    rows = len(table)
    user = np.array([row["user"] for row in table], types["user"])
    price = np.array([row["price"] for row in table], types["price"].replace("bool", "float32"))
    tags = [row["tags"] for row in table]
    flat = np.array([each for row in tags for each in row], np.int64)
    features = {"user": user, "tags": Ragged(flat, splits_of(tags)), "price": price}
    structure, tensors = flatten((features, np.zeros(rows, np.float32)))
    declared = Declared({"user": "item", "tags": "item"}, {"item": (1, 0)}, 2, 5)
    leaves = [Leaf.of(tensor) for tensor in tensors]
    if any(is_bad(verdict) for verdict in verdicts_of([USER], table)):
        first = next(row["user"] for row in table if not -(2**63) <= row["user"] < 2**63)
        with pytest.raises(DataError, match=f"'user' must be whole .*int64. Received: {first}"):
            split(declared, structure, leaves, 7)
        return
    halves = split(declared, structure, leaves, 7)
    sent = to_arrays(halves.leaves, halves.with_handles, declared.owners)
    arrived = from_arrays(*sent, halves.with_handles, 7, declared.owners)
    for number, (leaf, given) in enumerate(zip(arrived, leaves, strict=True)):
        values = leaf.values
        if number in halves.with_handles:
            values = keys_of_handles(values, halves.keys, 7)
            given_values = given.values.astype(np.int64)
        else:
            given_values = given.values
        assert (values.dtype, values.tobytes()) == (given_values.dtype, given_values.tobytes())
        for part, given_part in zip(leaf.parts, given.parts, strict=True):
            np.testing.assert_array_equal(part, given_part)


def keys_of_handles(
    handles: np.ndarray, keys: list[dict[str, np.ndarray]], ticket: int
) -> np.ndarray:
    key_of = {
        tfhybrid.core.split_batches.key_handle_of(ticket, owner, index): key
        for owner, of_owner in enumerate(keys, 2)
        for index, key in enumerate(of_owner.get("item", ()))
    }
    return np.array([key_of[handle] for handle in handles.ravel().tolist()], np.int64)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bool"])
def test_data_nodes_refuse_types(dtype: str) -> None:
    structure, tensors = flatten(({"user": np.zeros(2, dtype)}, np.zeros(2)))
    declared = Declared({"user": "item"}, {"item": (1, 0)}, 0, 1)
    with pytest.raises(ConfigError, match=f"'user' must be whole numbers. Received: {dtype}"):
        split(declared, structure, [Leaf.of(tensor) for tensor in tensors], 0)


KEYS = sorted(
    {value for value in VALUES["user"] if type(value) is int and -(2**63) <= value < 2**63}
    | {item for row in VALUES["tags"] if type(row) is list for item in row if type(item) is int}
    - {2**63, 10**30}
    | {1, 2}
    | {hash_one(value) for value in [*VALUES["city"], "Ulm"] if isinstance(value, str | bytes)}
)
MODEL = [USER, TAGS, CITY, PRICE]


@pytest.fixture
def model(job: None) -> Iterator[keras.Model]:
    """A model whose outputs tell the keys: the row of a key has 1 at the place of the key."""
    user = keras.Input((1,), dtype="int64", name="user")
    tags = keras.Input((None,), dtype="int64", name="tags", ragged=True)
    city = keras.Input((1,), dtype="string", name="city")
    price = keras.Input((1,), dtype="float32", name="price")
    table = tfhybrid.TableConfig(len(KEYS), combiner="sum")
    layer = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(("user", "tags", "city"), table))
    keys = tfhybrid.layers.StringKeys()(city)
    embedded = layer({"user": user, "tags": tags, "city": keys})
    outputs = keras.layers.Concatenate()([*(embedded[n] for n in ("user", "tags", "city")), price])
    model = keras.Model({"user": user, "tags": tags, "city": city, "price": price}, outputs)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.optimizer.build(model.trainable_variables)
    for each in layer.tables.values():
        each.load(ArrayRows(KEYS, np.eye(len(KEYS), dtype=np.float32)))
    yield model
    keras.backend.clear_session()


def assert_arrived(table: list[Row], outputs: np.ndarray) -> None:
    verdicts = verdicts_of(MODEL, table)
    user, tags, city, price = np.split(outputs, np.arange(1, 4) * len(KEYS), axis=1)
    received = [
        {
            "user": KEYS[int(np.argmax(user[row]))],
            "tags": sorted(np.repeat(KEYS, tags[row].astype(int)).tolist()),
            "city": KEYS[int(np.argmax(city[row]))],
            "price": price[row, 0].item(),
        }
        for row in range(len(table))
    ]
    for verdict in verdicts:
        verdict["tags"] = sorted(verdict["tags"])  # a bag has no order
    assert repr(received) == repr(verdicts)


def request_of(table: list[Row]) -> dict[str, tf.Tensor]:
    """Returns the tensors of a request to an exported model."""
    tags = [row["tags"] for row in table]
    flat = np.array([each for row in tags for each in row], np.int64)
    request = {
        name: tf.constant([[row[name]] for row in table], dtype, (len(table), 1))
        for name, dtype in (("user", tf.int64), ("city", tf.string), ("price", tf.float32))
    }
    return {**request, "tags": tf.constant(flat), "tags_row_splits": tf.constant(splits_of(tags))}


def test_layers_and_exported_models(model: keras.Model, tmp_path: Path) -> None:
    folder = export.saved_model(model, tmp_path)
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    layer = next(each for each in model.layers if hasattr(each, "tables"))
    for seed, rows in enumerate(SIZES):
        table, _ = drawn(WAYS["exported models"], MODEL, seed, rows)
        request = request_of(table)
        assert_arrived(table, serve(**request)["output_0"].numpy())
        table, _ = drawn(WAYS["layers"], MODEL, seed + 50, rows)
        request = request_of(table)
        splits = request.pop("tags_row_splits")
        ragged = tf.RaggedTensor.from_row_splits(request.pop("tags"), splits)
        outputs = model({**request, "tags": ragged}).numpy()
        assert_arrived(table, outputs)
        bags = outputs[:, len(KEYS) : 2 * len(KEYS)]
        for sparse in (ragged.to_sparse(), shuffled(ragged.to_sparse(), seed)):
            keys = dict.fromkeys(("user", "city"), request["user"])
            embedded = layer({**keys, "tags": sparse})
            np.testing.assert_array_equal(embedded["tags"], bags)


def shuffled(tensor: tf.SparseTensor, seed: int) -> tf.SparseTensor:
    order = np.random.default_rng(seed).permutation(len(tensor.values))
    indices, values = (tf.gather(each, order) for each in (tensor.indices, tensor.values))
    return tf.SparseTensor(indices, values, tensor.dense_shape)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bool", "uint64", "string"])
def test_layers_refuse_types(job: None, dtype: str) -> None:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2), table="item")
    shown = "float32" if dtype == "float64" else dtype  # Keras casts it
    with pytest.raises(ConfigError, match=f"must be int64 or int32.*Received: {shown}"):
        layer(tf.zeros((2, 1), dtype) if dtype != "string" else tf.constant([["a"]]))


SPECS = {
    "user": tf.TensorSpec([None], tf.int64),
    "city": tf.TensorSpec([None], tf.string),
    "price": tf.TensorSpec([None], tf.float32),
}
REQUEST = [USER, Column("city", "string"), Column("price", "number")]


@pytest.mark.parametrize("rows", SIZES[1:])
@pytest.mark.parametrize("column", REQUEST, ids=lambda column: column.name)
def test_requests_to_served_models(column: Column, rows: int) -> None:
    table, _ = drawn(WAYS["`ServedModel`"], [column], rows, rows)
    name = column.name
    table = [row for row in table if not isinstance(row[name], list)]
    while True:
        verdicts = [v[name] for v in verdicts_of([column], table, hash_string=lambda t: t)]
        values = [row[name] for row in table]
        bad = next((n for n, verdict in enumerate(verdicts) if verdict is BAD), None)
        if bad is None:
            break
        with pytest.raises(DataError, match=rf"Input '{name}', index \[{bad}\]: expected "):
            tensors_of(SPECS, {name: values}, finite=True)
        del table[bad]
    received = tensors_of(SPECS, {name: values}, finite=True)[name].numpy().tolist()
    texts = [v.encode() if isinstance(v, str) else v for v in verdicts]
    assert repr(received) == repr(texts if name == "city" else verdicts)
