"""Tables with `gather_on="device"`: embeddings, bags and gradients have the same bits."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tfhybrid.errors import ConfigError
from tfhybrid.ops import lookup as lookup_op
from tfhybrid.ops.device_gather import lookup_on_device
from tfhybrid.ops.lookup import FeatureKeys, OutputForm, has_distinct_keys

COMBINERS = ("sum", "mean", "sqrtn")
ZERO_KEY = 77


def on_device(**options) -> tfhybrid.TableConfig:
    return tfhybrid.TableConfig(dim=5, gather_on="device", **options)


def features(*, weighted: bool) -> list[FeatureKeys]:
    """One without a combiner and one with each, of the same table; some bags are empty."""
    random = np.random.default_rng(3)
    found = [FeatureKeys(tf.constant(random.integers(0, 40, (8, 3)), tf.int64))]
    for combiner in COMBINERS:
        lengths = np.array([0, 1, 5, 2, 0, 9, 1, 3])
        keys = random.integers(0, 40, lengths.sum())
        keys[0] = ZERO_KEY  # alone in its bag
        weights = None
        if weighted:
            weights = random.normal(size=len(keys)).astype(np.float32)
            weights[1:6] = [1, -1, 0, 0, 0]  # of one bag: their sum is zero
            weights = tf.constant(weights)
        splits = tf.constant(np.concatenate([[0], np.cumsum(lengths)]), tf.int64)
        found.append(FeatureKeys(tf.constant(keys, tf.int64), combiner, splits, weights))
    return found


def bits(tensors: Sequence[tf.Tensor]) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in tensors]


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float64])
def test_bags_and_gradients_have_the_bits_of_the_op(
    *, dtype: tf.DType, weighted: bool, compiled: bool
) -> None:
    layer = tfhybrid.layers.Embedding(on_device(), table="item")
    layer.build()
    negative_zeros = np.full((1, 5), -0.0, np.float32)
    layer.table.load(tfhybrid.checkpoint.ArrayRows(np.array([ZERO_KEY]), negative_zeros))
    (proxy,) = layer.trainable_variables
    of_features = features(weighted=weighted)
    tables = [proxy.table_ref] * len(of_features)

    def both() -> list[tuple[list[tf.Tensor], tf.IndexedSlices]]:
        found = []
        for there in (True, False):
            with tf.GradientTape() as tape:
                value = tf.convert_to_tensor(proxy)
                if there:
                    form, values = OutputForm(dtype=dtype), [value] * len(tables)
                    embeddings = lookup_on_device(tables, of_features, values, form=form)
                else:
                    wide = lookup_op.lookup(tables, of_features)
                    embeddings = [tf.cast(some, dtype) for some in wide]
                loss = tf.add_n([tf.reduce_sum(tf.sin(some) ** 2) for some in embeddings])
            slices = tape.gradient(loss, proxy)
            assert has_distinct_keys(slices) is compiled
            found.append((embeddings, slices))
        return found

    (embeddings, slices), (of_host, of_op) = (tf.function(both) if compiled else both)()
    assert bits(embeddings) == bits(of_host)
    for mine, its in ((slices.indices, of_op.indices), (slices.values, of_op.values)):
        assert bits([mine]) == bits([its])
    assert slices.dense_shape.numpy().tolist() == of_op.dense_shape.numpy().tolist() == [8, 5]


@pytest.mark.usefixtures("job")
def test_layers_of_both_kinds_of_table_look_up_as_they_lie() -> None:
    configs = {
        "user": on_device(),
        "item": tfhybrid.TableConfig(dim=3),
        "seen": on_device(combiner="mean", max_length=2),
        "tags": on_device(),
    }
    keys = {
        "user": tf.constant([[7], [-1]]),
        "item": tf.constant([[1, 2], [2, 2]]),
        "seen": tf.ragged.constant([[4, 4, 4], []], dtype=tf.int64),
        "tags": tf.ragged.constant([[5], [6, 5]], dtype=tf.int64),
    }
    layer = tfhybrid.layers.EmbeddingCollection(configs, shared={"thing": ["seen", "tags"]})
    found = layer(keys)
    thing = layer.tables["thing"]
    np.testing.assert_array_equal(found["user"], layer.tables["user"].lookup([[7], [-1]]))
    np.testing.assert_array_equal(found["item"], layer.tables["item"].lookup([[1, 2], [2, 2]]))
    np.testing.assert_array_equal(found["seen"], [thing.lookup([4])[0], np.zeros(5)])
    np.testing.assert_array_equal(found["tags"].flat_values, thing.lookup([5, 6, 5]))
    assert found["tags"].shape.as_list() == [2, None, 5]
    assert found["tags"].row_lengths().numpy().tolist() == [1, 2]
    del configs["tags"]
    joined = tfhybrid.layers.EmbeddingCollection(configs, concatenate=True, prefix="joined_")
    side_by_side = joined(keys)
    assert side_by_side.shape == (2, 5 + 2 * 3 + 5)
    wanted = [joined.tables["user"].lookup([7, -1]), joined.tables["item"].lookup([[1, 2], [2, 2]])]
    np.testing.assert_array_equal(
        side_by_side[:, :11], np.concatenate([np.reshape(some, (2, -1)) for some in wanted], axis=1)
    )


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("samples", [0, 6])
def test_one_gather_writes_all_features_side_by_side(*, samples: int, compiled: bool) -> None:
    """Keys of several shapes, and two features of one table; a sum of whole numbers is exact."""
    random = np.random.default_rng(samples)
    shapes = {"user": (), "clicked": (2,), "bought": (1, 3)}
    keys = {name: random.integers(0, 9, (samples, *shape)) for name, shape in shapes.items()}
    upstream = random.integers(-9, 9, (samples, 6 * 5)).astype(np.float32)
    layer = tfhybrid.layers.EmbeddingCollection(
        dict.fromkeys(shapes, on_device()),
        shared={"item": ["clicked", "bought"]},
        concatenate=True,
    )
    layer.build()

    def train(keys: dict[str, tf.Tensor]) -> tuple[tf.Tensor, list[tf.IndexedSlices]]:
        with tf.GradientTape() as tape:
            embeddings = layer(keys)
            loss = tf.reduce_sum(embeddings * upstream)
        return embeddings, tape.gradient(loss, layer.trainable_variables)

    if compiled:
        kinds = {name: tf.TensorSpec([None, *shape], tf.int64) for name, shape in shapes.items()}
        train = tf.function(train, input_signature=[kinds])
    embeddings, gradients = train({name: tf.constant(some) for name, some in keys.items()})
    assert embeddings.shape == (samples, 6 * 5)
    tables = {"user": ["user"], "item": ["clicked", "bought"]}
    rows = [
        layer.tables[name]
        .lookup(keys[feature])
        .reshape(samples, 5 * math.prod(keys[feature].shape[1:]))
        for name, features in tables.items()
        for feature in features
    ]
    np.testing.assert_array_equal(embeddings, np.concatenate(rows, axis=1))
    parts = dict(zip(shapes, np.split(upstream, [5, 15], axis=1), strict=True))
    for proxy, slices in zip(layer.trainable_variables, gradients, strict=True):
        features = tables[proxy.table.name]
        of_table = np.concatenate([keys[feature].ravel() for feature in features])
        given = np.concatenate([parts[feature].reshape(-1, 5) for feature in features])
        sums = {key: given[of_table == key].sum(axis=0) for key in np.unique(of_table)}
        assert sorted(slices.indices.numpy()) == sorted(sums)
        for key, found in zip(slices.indices.numpy(), slices.values.numpy(), strict=True):
            np.testing.assert_array_equal(found, sums[key])


@pytest.mark.usefixtures("job")
def test_features_side_by_side_have_keys_of_the_same_samples() -> None:
    layer = tfhybrid.layers.EmbeddingCollection(
        dict.fromkeys(["user", "item"], on_device()), concatenate=True
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"of 2 samples\. Received: \[3\]"):
        layer({"user": tf.constant([1, 2]), "item": tf.constant([1, 2, 3])})


def test_a_place_has_a_name() -> None:
    with pytest.raises(ConfigError, match=r"'host' or 'device'.*Received: gather_on='gpu'"):
        tfhybrid.TableConfig(dim=4, gather_on="gpu")


def test_models_are_fitted_to_the_same_bits_on_logical_devices() -> None:
    """Fit, evaluation, prediction, loops, micro-batches; all tables there or some."""
    job = [sys.executable, "-m", "tests.unit.layers.fitted_on_devices"]
    done = subprocess.run(job, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "exact\n"
