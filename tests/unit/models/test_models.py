"""Models against the formulas of their papers, and as models that learn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid.errors import ConfigError
from tfhybrid.models import dcn, dcnv2, deepfm, din, dlrm, dnn, fm, lr, wide_deep, xdeepfm

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


def test_a_factorization_machine_is_first_order_plus_all_pairs(keys) -> None:
    model = fm(FEATURES, table=TABLE)
    model.get_layer("bias").set_weights([np.array([0.25])])
    factors, first_order = np.split(fields_of(model, keys), [TABLE.dim], axis=2)
    square = factors.sum(axis=1) ** 2 - (factors**2).sum(axis=1)
    expected = 0.25 + first_order.sum(axis=(1, 2)) + square.sum(axis=1) / 2
    np.testing.assert_allclose(model(keys)[:, 0], expected, atol=1e-5)


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


def test_logistic_regression_is_a_sum_of_weights(keys) -> None:
    model = lr(FEATURES, table=TABLE)
    model.get_layer("bias").set_weights([np.array([0.5])])
    np.testing.assert_allclose(model(keys), 0.5 + fields_of(model, keys).sum(axis=1), atol=1e-6)


def test_wide_and_deep_is_first_order_beside_the_network_of_dnn(keys) -> None:
    wide = wide_deep(FEATURES, table=TABLE, hidden=(8,))
    fields = fields_of(wide, keys)
    deep = network(wide, fields[..., :-1].reshape(32, -1), "deep")
    np.testing.assert_allclose(wide(keys), deep + fields[..., -1].sum(1, keepdims=True), atol=1e-5)
    tfhybrid.shutdown()
    tfhybrid.init()
    plain = dnn(FEATURES, table=TABLE, hidden=(8,))
    expected = network(plain, fields_of(plain, keys).reshape(32, -1), "logits")
    np.testing.assert_allclose(plain(keys), expected, atol=1e-5)


def network(model: keras.Model, x: np.ndarray, last: str) -> np.ndarray:
    """A tower of one layer, and the layer after it."""
    kernel, bias = model.get_layer("dense_1").get_weights()
    end, end_bias = model.get_layer(last).get_weights()
    return np.maximum(x @ kernel + bias, 0) @ end + end_bias


def test_a_cross_of_rank_one_scales_the_embeddings(keys) -> None:
    model = dcn(FEATURES, table=TABLE, crosses=2, hidden=(8,))
    x = crossed = fields_of(model, keys).reshape(32, -1)
    for index in (1, 2):
        (weight,) = model.get_layer(f"cross_{index}").get_weights()
        bias = np.arange(x.shape[1]) / 10
        model.get_layer(f"cross_bias_{index}").set_weights([bias])
        crossed = x * (crossed @ weight) + bias + crossed
    kernel, dense_bias = model.get_layer("dense_1").get_weights()
    both = np.concatenate([crossed, np.maximum(x @ kernel + dense_bias, 0)], axis=1)
    kernel, bias = model.get_layer("logits").get_weights()
    np.testing.assert_allclose(model(keys), both @ kernel + bias, atol=1e-5)


def test_compressed_interactions_are_weighted_products_of_fields(keys) -> None:
    model = xdeepfm(FEATURES, table=TABLE, interactions=(5, 3), hidden=(8,))
    fields = fields_of(model, keys)
    x, first_order = fields[..., :-1], fields[..., -1]
    maps, pooled = x, []
    for index, units in ((1, 5), (2, 3)):
        (weight,) = model.get_layer(f"interaction_{index}").get_weights()
        weight = weight.reshape(maps.shape[1], len(FEATURES), units)
        maps = np.einsum("bhd,bmd,hmu->bud", maps, x, weight)
        pooled.append(maps.sum(axis=2))
    kernel, bias = model.get_layer("dense_1").get_weights()
    deep = np.maximum(x.reshape(32, -1) @ kernel + bias, 0)
    kernel, bias = model.get_layer("logits").get_weights()
    expected = np.concatenate([*pooled, deep], axis=1) @ kernel + bias
    expected += first_order.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model(keys), expected, atol=1e-5)


@pytest.mark.parametrize("interaction", ["dot", "cat"])
@pytest.mark.parametrize("dense", [{}, {"age": 1, "prices": 3}], ids=["categories", "dense"])
def test_dlrm_reads_products_of_all_pairs_or_the_fields(keys, dense, interaction) -> None:
    model = dlrm(
        FEATURES, table=TABLE, dense=dense, bottom=(6,), interaction=interaction, hidden=(8,)
    )
    columns = {name: np.random.default_rng(1).normal(size=(32, n)) for name, n in dense.items()}
    fields = fields_of(model, keys)
    read = fields.reshape(32, -1)
    if dense:
        read = np.concatenate([*columns.values()], axis=1)
        for index in (1, 2):
            kernel, bias = model.get_layer(f"bottom_{index}").get_weights()
            read = np.maximum(read @ kernel + bias, 0)
        fields = np.concatenate([read[:, None], fields], axis=1)
    pairs = itertools.combinations(range(fields.shape[1]), 2)
    products = [(fields[:, one] * fields[:, other]).sum(axis=1) for one, other in pairs]
    read = np.concatenate([read, np.stack(products, 1)], axis=1)
    if interaction == "cat":
        read = fields.reshape(32, -1)
    expected = network(model, read, "logits")
    np.testing.assert_allclose(model({**keys, **columns}), expected, atol=1e-5)


def test_dlrm_knows_two_interactions() -> None:
    with pytest.raises(ConfigError, match="Received: 'sum'"):
        dlrm(FEATURES, table=TABLE, interaction="sum")


@pytest.mark.parametrize("build", [dcn, dcnv2, deepfm, dlrm, dnn, fm, wide_deep, xdeepfm])
def test_it_learns_an_interaction(build, keys) -> None:
    labels = ((keys["user"] + keys["item"]) % 2).astype(np.float32)
    model = build(FEATURES, table=TABLE, **({} if build is fm else {"hidden": (32,)}))
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.02)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    steps = tf.data.Dataset.from_tensors((keys, labels)).repeat(60)
    model.fit(steps, shuffle=False, verbose=0)
    assert tfhybrid.metrics.evaluate(model, [(keys, labels)])["auc"] > 0.99


@pytest.mark.parametrize("build", [dcn, dcnv2, deepfm, dlrm, dnn, wide_deep, xdeepfm])
def test_options_of_the_tower_reach_the_model(build) -> None:
    model = build(FEATURES, table=TABLE, hidden=(8, 4), dropout=0.5, batch_norm=True, name="mine")
    names = {layer.name for layer in model.layers}
    assert {"dense_2", "dropout_2", "batch_norm_2"} <= names
    assert model.name == "mine"
    assert model.output_shape == (None, 1)


@pytest.fixture
def numbers() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {"age": random.normal(size=(32, 1)), "prices": random.normal(size=(32, 3))}


WIDTHS = {"age": 1, "prices": 3}


@pytest.mark.parametrize("build", [dcn, dcnv2, deepfm, din, dnn, wide_deep, xdeepfm])
def test_networks_read_numbers_beside_the_embeddings(build, keys, numbers) -> None:
    options = {"behaviours": {}} if build is din else {}
    model = build(FEATURES, table=TABLE, dense=WIDTHS, hidden=(8,), **options)
    fields = fields_of(model, keys)[..., : TABLE.dim]
    expected = np.concatenate([fields.reshape(32, -1), *numbers.values()], axis=1)
    names = ["dense_1", "cross_1"] if build in (dcn, dcnv2) else ["dense_1"]
    for name in names:
        read = keras.Model(model.input, model.get_layer(name).input)(keys | numbers)
        np.testing.assert_allclose(read, expected, atol=1e-6)


@pytest.mark.parametrize("build", [deepfm, fm, lr, wide_deep, xdeepfm])
def test_numbers_have_first_order_weights(build, keys, numbers) -> None:
    model = build(FEATURES, table=TABLE, dense=WIDTHS)
    for name in {"deep", "logits"} & {layer.name for layer in model.layers}:
        silence(model, name)
    (weights,) = model.get_layer("first_order_of_numbers").get_weights()
    zeros = {name: np.zeros_like(each) for name, each in numbers.items()}
    expected = np.concatenate([*numbers.values()], axis=1) @ weights
    np.testing.assert_allclose(model(keys | numbers) - model(keys | zeros), expected, atol=1e-5)


@pytest.mark.parametrize(("name", "width"), [("user", 1), ("age", 0), ("age", None)])
def test_a_dense_column_has_a_width_and_a_name_of_its_own(name, width) -> None:
    for build in (deepfm, din):
        options = {"behaviours": {}} if build is din else {}
        with pytest.raises(ConfigError, match=f"dense must be .*Received: dense={{'{name}'"):
            build(FEATURES, table=TABLE, dense={name: width}, **options)
