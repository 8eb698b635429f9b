"""Features with a combiner: every model reads lists of keys as one field."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import models
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")

TABLE = tfhybrid.TableConfig(dim=4, initializer=tfhybrid.initializers.Uniform(-0.5, 0.5))
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"hidden": (8,)} for name in ("dcn", "dcnv2", "deepfm", "dlrm", "dnn", "wide_deep")},
    "fm": {},
    "lr": {},
    "xdeepfm": {"hidden": (8,), "interactions": (3,)},
    "din": {"hidden": (8,), "behaviours": {"seen": "item"}},
}


def lists_table(combiner: str, **changes: Any) -> dict[str, tfhybrid.TableConfig]:
    tags = dataclasses.replace(TABLE, combiner=combiner, **changes)
    return {"item": TABLE, "tags": tags}


def build(name: str, table: Any) -> keras.Model:
    return getattr(models, name)(["item", "tags"], table=table, **OPTIONS[name])


def inputs_of(name: str, tags: Any) -> dict[str, Any]:
    inputs = {"item": tf.constant([[3], [-4], [3]], tf.int64), "tags": tags}
    if name == "din":
        inputs["seen"] = tf.ragged.constant([[1, 2], [], [3]], tf.int64)
    return inputs


def dense_layers(model: keras.Model) -> list[keras.layers.Layer]:
    collection = tfhybrid.layers.EmbeddingCollection
    return [each for each in model.layers if each.weights and not isinstance(each, collection)]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_list_of_one_key_is_that_key(name) -> None:
    keys = [[7], [7], [-9]]
    plain = build(name, TABLE)
    expected = plain(inputs_of(name, tf.constant(keys, tf.int64)), training=True)
    weights = [layer.get_weights() for layer in dense_layers(plain)]
    tfhybrid.shutdown()
    tfhybrid.init()
    lists = build(name, lists_table("sum"))
    for layer, values in zip(dense_layers(lists), weights, strict=True):
        layer.set_weights(values)
    ragged = tf.ragged.constant(keys, tf.int64)
    np.testing.assert_array_equal(lists(inputs_of(name, ragged), training=True), expected)


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_a_list_is_the_combination_of_its_keys(combiner) -> None:
    model = build("lr", lists_table(combiner, max_length=2, keep="last"))
    (layer,) = (each for each in model.layers if hasattr(each, "tables"))
    lists = [[5, 7, 8], [], [8]]
    logits = model(inputs_of("lr", tf.ragged.constant(lists, tf.int64)), training=True)
    of_item = layer.tables["item"].lookup([3, -4, 3])[:, 0]
    combine = getattr(np, combiner)
    of_tags = [combine(layer.tables["tags"].lookup(keys[-2:])) if keys else 0.0 for keys in lists]
    np.testing.assert_allclose(logits[:, 0], of_item + of_tags, atol=1e-6)


def test_it_learns_what_is_in_a_list_and_exports_it(tmp_path) -> None:
    random = np.random.default_rng(2)
    lists = [random.integers(0, 20, random.integers(0, 5)).tolist() for _ in range(256)]
    labels = np.float32([[3 in keys] for keys in lists])
    inputs = {
        "item": tf.zeros([256, 1], tf.int64),
        "tags": tf.ragged.constant(lists, tf.int64, ragged_rank=1),
    }
    model = build("deepfm", lists_table("mean"))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.02)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    model.fit(tf.data.Dataset.from_tensors((inputs, labels)).repeat(60), verbose=0)
    assert tfhybrid.metrics.evaluate(model, [(inputs, labels)])["auc"] > 0.99
    folder = tfhybrid.export.saved_model(model, tmp_path)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](
        item=inputs["item"],
        tags=inputs["tags"].values,
        tags_row_splits=inputs["tags"].row_splits,
    )
    expected = model(inputs, training=False)
    np.testing.assert_allclose(served["output_0"], expected, atol=1e-5)


def test_a_behaviour_is_not_compared_with_a_list() -> None:
    with pytest.raises(ConfigError, match=r"one key per sample.*Received: \['tags'\]"):
        models.din(["item", "tags"], behaviours={"seen": "tags"}, table=lists_table("mean"))
