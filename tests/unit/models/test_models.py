"""DeepFM and DCN-V2 against their formulas, and as models that learn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tfhybrid.models import dcnv2, deepfm

FEATURES = ("user", "item", "hour")
TABLE = tfhybrid.TableConfig(dim=4, initializer=tfhybrid.initializers.Uniform(-0.5, 0.5))


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    tfhybrid.init()
    yield
    tfhybrid.shutdown()


@pytest.fixture
def keys() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.integers(-50, 50, (32, 1)) for name in FEATURES}


def fields_of(model: keras.Model, keys: dict[str, np.ndarray]) -> np.ndarray:
    """The rows that the model looked up: `[batch, features, row]`."""
    rows = embedding_layer(model)(keys)
    return np.concatenate([np.asarray(rows[name]) for name in FEATURES], axis=1)


def embedding_layer(model: keras.Model) -> keras.layers.Layer:
    (layer,) = (
        layer for layer in model.layers if isinstance(layer, tfhybrid.layers.EmbeddingCollection)
    )
    return layer


def silence(model: keras.Model, layer: str) -> None:
    """Sets a dense layer's weights to zero."""
    dense = model.get_layer(layer)
    dense.set_weights([np.zeros_like(weight) for weight in dense.get_weights()])


def test_deepfm_is_first_order_plus_all_pairs(keys) -> None:
    model = deepfm(FEATURES, table=TABLE, hidden=(8,))
    silence(model, "deep")
    fields = fields_of(model, keys)
    factors, first_order = fields[..., :-1], fields[..., -1]
    pairs = sum(
        np.sum(factors[:, one] * factors[:, other], axis=1)
        for one, other in itertools.combinations(range(len(FEATURES)), 2)
    )
    np.testing.assert_allclose(model(keys)[:, 0], first_order.sum(axis=1) + pairs, atol=1e-5)


def test_deepfm_keeps_first_order_weights_in_the_embeddings_rows(keys) -> None:
    model = deepfm(FEATURES, table=TABLE, hidden=())
    assert set(embedding_layer(model).tables) == set(FEATURES)
    assert fields_of(model, keys).shape == (32, 3, TABLE.dim + 1)


def test_a_cross_layer_multiplies_the_embeddings(keys) -> None:
    model = dcnv2(FEATURES, table=TABLE, crosses=2, hidden=(8,))
    x = crossed = fields_of(model, keys).reshape(32, -1)
    for index in (1, 2):
        kernel, bias = model.get_layer(f"cross_{index}").get_weights()
        crossed = x * (crossed @ kernel + bias) + crossed
    kernel, bias = model.get_layer("logits").get_weights()
    kernel[x.shape[1] :] = 0
    model.get_layer("logits").set_weights([kernel, bias])
    np.testing.assert_allclose(model(keys), crossed @ kernel[: x.shape[1]] + bias, atol=1e-5)


@pytest.mark.parametrize("build", [deepfm, dcnv2])
def test_it_learns_an_interaction(build, keys) -> None:
    labels = ((keys["user"] + keys["item"]) % 2).astype(np.float32)
    model = build(FEATURES, table=TABLE, hidden=(32,))
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.02)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    steps = tf.data.Dataset.from_tensors((keys, labels)).repeat(60)
    model.fit(steps, shuffle=False, verbose=0)
    assert tfhybrid.metrics.evaluate(model, [(keys, labels)])["auc"] > 0.99


def test_options_of_the_tower_reach_the_model() -> None:
    model = deepfm(FEATURES, table=TABLE, hidden=(8, 4), dropout=0.5, batch_norm=True, name="mine")
    names = {layer.name for layer in model.layers}
    assert {"dense_2", "dropout_2", "batch_norm_2"} <= names
    assert model.name == "mine"
    assert model.output_shape == (None, 1)
