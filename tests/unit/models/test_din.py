"""The Deep Interest Network against the formula of its paper, and as a model that learns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid.errors import ConfigError
from tfhybrid.models import din

TABLE = tfhybrid.TableConfig(dim=4, initializer=tfhybrid.initializers.Uniform(-0.5, 0.5))
SEEN = [[5, -7, 5], [], [2**63 - 1, 0, 3, 3, 9]]


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    tfhybrid.init()
    yield
    tfhybrid.shutdown()


def samples(seen: list[list[int]], item: list[int]) -> dict[str, tf.Tensor]:
    keys = tf.constant(item, tf.int64)[:, tf.newaxis]
    return {"user": keys * 0, "item": keys, "seen": tf.ragged.constant(seen, tf.int64)}


def layer_of(model: keras.Model) -> tfhybrid.layers.EmbeddingCollection:
    (layer,) = (x for x in model.layers if isinstance(x, tfhybrid.layers.EmbeddingCollection))
    return layer


@pytest.mark.parametrize("max_length", [None, 2])
def test_interests_are_sums_weighed_by_the_candidate(max_length) -> None:
    model = din(
        ["user", "item"],
        behaviours={"seen": "item"},
        table=TABLE,
        max_length=max_length,
        attention=(6,),
        hidden=(8,),
    )
    items = [5, 5, -(2**63)]
    tables = layer_of(model).tables
    assert sorted(tables) == ["item", "user"]
    (hidden, hidden_bias), (last, last_bias) = np.split(
        np.array(model.get_layer("interest_seen").get_weights(), dtype=object), 2
    )
    interests = np.zeros((3, TABLE.dim))
    for sample, (keys, item) in enumerate(zip(SEEN, items, strict=True)):
        (candidate,) = tables["item"].lookup([item])
        for row in tables["item"].lookup(keys[-(max_length or 99) :]):
            pair = np.concatenate([row, candidate, row - candidate, row * candidate])
            sigmoid = 1 / (1 + np.exp(-(pair @ hidden + hidden_bias)))
            interests[sample] += (sigmoid @ last + last_bias) * row
    rows = [tables["user"].lookup([0, 0, 0]), tables["item"].lookup(items)]
    kernel, bias = model.get_layer("dense_1").get_weights()
    end, end_bias = model.get_layer("logits").get_weights()
    deep = np.maximum(np.concatenate([*rows, interests], axis=1) @ kernel + bias, 0)
    np.testing.assert_allclose(model(samples(SEEN, items)), deep @ end + end_bias, atol=1e-5)


def test_it_learns_what_was_seen_before() -> None:
    """An item is clicked where it was seen: nothing of user or item alone tells."""
    random = np.random.default_rng(1)
    seen = [random.choice(40, random.integers(1, 8), replace=False).tolist() for _ in range(512)]
    item = [
        int(random.choice(keys) if i % 2 else random.integers(40)) for i, keys in enumerate(seen)
    ]
    labels = np.float32([[i in keys] for i, keys in zip(item, seen, strict=True)])
    model = din(["user", "item"], behaviours={"seen": "item"}, table=TABLE, hidden=(32,))
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.02)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    steps = tf.data.Dataset.from_tensors((samples(seen, item), labels)).repeat(150)
    model.fit(steps, verbose=0)
    scores = tfhybrid.metrics.evaluate(model, [(samples(seen, item), labels)])
    assert scores["auc"] > 0.99
    (table,) = (t for name, t in layer_of(model).tables.items() if name == "item")
    assert table.rows == len({key for keys in seen for key in keys} | set(item))


@pytest.mark.parametrize("behaviours", [{"seen": "shop"}, {"item": "item"}])
def test_behaviours_of_no_feature_are_refused(behaviours) -> None:
    with pytest.raises(ConfigError, match=r"the feature it is compared with\. Received: "):
        din(["user", "item"], behaviours=behaviours, table=TABLE)
