"""What keys without a row read in evaluation, prediction and exports, against plain NumPy."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import export, metrics
from tfhybrid.core import native
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")

SEEN = np.arange(-10, 10)
ASKED = np.array([-10, 3, 1_000_000, 9, -(2**63), 2**63 - 1, 1_000_000])
LABELS = np.array([0, 1, 1, 0, 1, 0, 0], np.float32)
CHOICES = [None, "zeros", "initial"]
DIM = 5


def table(**options) -> tfhybrid.TableConfig:
    optimizer = tfhybrid.optimizers.SGD(0.5)
    return tfhybrid.TableConfig(DIM, "normal", optimizer=optimizer, **options)


class Sum(keras.layers.Layer):
    """The sum of all embeddings of a sample."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.reshape(inputs, [tf.shape(inputs)[0], -1]), axis=1, keepdims=True)


class Subclassed(keras.Model):
    """A model whose `call` does not say whether it trains."""

    def __init__(self, layer: tfhybrid.layers.Embedding) -> None:
        super().__init__()
        self.embed, self.add_up = layer, Sum()

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return self.add_up(self.embed(inputs["item"]))


class Inferring(Subclassed):
    """A model that calls its layer with `training=False`, as for one to be tuned finely."""

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return self.add_up(self.embed(inputs["item"], training=False))


def functional(layer: tfhybrid.layers.Embedding) -> keras.Model:
    item = keras.Input((1,), dtype="int64", name="item")
    return keras.Model({"item": item}, Sum()(layer(item)))


def trained(build: Callable[..., keras.Model], **options) -> tuple[keras.Model, tfhybrid.Table]:
    """A model with rows for `SEEN`, and its table."""
    layer = tfhybrid.layers.Embedding(table(**options), table="items")
    model = build(layer)
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.5)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    labels = (SEEN % 3 == 0).astype(np.float32)
    model.fit({"item": SEEN[:, np.newaxis]}, labels, batch_size=5, epochs=2, verbose=0)
    return model, layer.table


def judged(table: tfhybrid.Table, keys: np.ndarray, unseen: str | None) -> np.ndarray:
    """Returns the sums of the embeddings of keys, computed in NumPy from the rows that exist."""
    initial = table.config.initializer.native
    rows = np.zeros((len(keys), DIM), np.float32)
    if unseen == "initial":
        seed = native.table_seed(table.seed, table.name)
        rows = native.initial_rows(*initial, seed, keys, DIM)
    held = table.read(np.unique(keys))
    for key, row in zip(held.keys, held.embeddings, strict=True):
        rows[keys == key] = row
    return rows.sum(axis=1, keepdims=True)


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("unseen", CHOICES)
@pytest.mark.parametrize("build", [functional, Subclassed])
def test_evaluate_predict_and_export_are_numpys(build, unseen: str | None, tmp_path: Path) -> None:
    model, items = trained(build, unseen=unseen)
    assert items.rows == len(SEEN)
    inputs = {"item": ASKED[:, np.newaxis]}
    expected = judged(items, ASKED, unseen)
    close(model.predict(inputs, verbose=0), expected)
    close(model.predict_on_batch(inputs), expected)
    close(tf.function(lambda: model(inputs))(), expected)
    losses = np.logaddexp(0, expected) - LABELS[:, np.newaxis] * expected
    assert model.evaluate(inputs, LABELS, verbose=0) == pytest.approx(losses.mean(), abs=1e-6)
    scores = metrics.evaluate(model, [(inputs, LABELS[:, np.newaxis])])
    assert scores["auc"] == metrics.auc(LABELS, expected[:, 0])
    specs = {"item": tf.TensorSpec([None, 1], tf.int64)} if build is Subclassed else None
    folder = export.saved_model(model, tmp_path, inputs=specs)
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    close(signature(item=tf.constant(inputs["item"]))["output_0"], expected)
    assert items.rows == len(SEEN)


@pytest.mark.parametrize("unseen", CHOICES)
def test_training_reads_initial_values(unseen: str | None) -> None:
    model, items = trained(functional, unseen=unseen)
    inputs = {"item": ASKED[:, np.newaxis]}
    initial, expected = judged(items, ASKED, "initial"), judged(items, ASKED, unseen)
    close(model(inputs), initial)
    close(model(inputs, training=True), initial)
    close(model(inputs, training=False), expected)
    close(items.lookup(ASKED).sum(axis=1, keepdims=True), initial)
    losses = np.logaddexp(0, initial) - LABELS[:, np.newaxis] * initial
    assert model.train_on_batch(inputs, LABELS) == pytest.approx(losses.mean(), abs=1e-6)
    assert items.rows == len(SEEN) + 3


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("build", [functional, Subclassed])
def test_a_loop_that_does_not_say_that_it_trains(build, *, compiled: bool) -> None:
    """A gradient is one of initial values, and makes rows that begin there."""
    model, items = trained(build)
    inputs = {"item": tf.constant(ASKED[2:3, np.newaxis])}
    start = items.lookup(ASKED[2:3])

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            output = model(inputs)
            loss = tf.reduce_sum(output)
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return output

    close((tf.function(step) if compiled else step)(), start.sum(axis=1, keepdims=True))
    close(items.lookup(ASKED[2:3]), start - 0.5)
    close(model.predict(inputs, verbose=0), (start - 0.5).sum(axis=1, keepdims=True))


def test_rows_that_are_trained_as_if_outside() -> None:
    """In a graph, who takes the gradient of a lookup trains, whatever `training` says."""
    model, items = trained(Inferring)
    inputs = {"item": ASKED[:, np.newaxis]}
    expected = judged(items, ASKED, "zeros")
    close(model.predict(inputs, verbose=0), expected)
    close(model(inputs), expected)
    initial = judged(items, ASKED, "initial")
    losses = np.logaddexp(0, initial) - LABELS[:, np.newaxis] * initial
    assert model.train_on_batch(inputs, LABELS) == pytest.approx(losses.mean(), abs=1e-6)


def test_an_eager_model_evaluates_as_a_compiled_one() -> None:
    model, items = trained(functional)
    inputs = {"item": ASKED[:, np.newaxis]}
    model.compile(model.optimizer, model.loss, run_eagerly=True)
    close(model.predict(inputs, verbose=0), judged(items, ASKED, "zeros"))


@pytest.mark.parametrize("unseen", ["zeros", "initial"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("concatenate", [False, True])
def test_bags(combiner: str, unseen: str, *, concatenate: bool) -> None:
    """Weighted bags of two features of one table: keys without a row count in the divisor."""
    config = table(unseen=unseen, combiner=combiner)
    layer = tfhybrid.layers.EmbeddingCollection(
        {"items": config}, shared={"items": ["a", "b"]}, concatenate=concatenate
    )
    layer.build()
    items = layer.tables["items"]
    rows = np.random.default_rng(1).normal(size=(len(SEEN), DIM)).astype(np.float32)
    items.load(tfhybrid.checkpoint.ArrayRows(SEEN, rows))
    splits = np.array([0, 3, 3, 7])
    weights = np.array([1, 2, 0.5, 1, 3, 0.25, 2], np.float32)

    def ragged(values: np.ndarray) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_row_splits(values, splits)

    found = layer(
        {"a": ragged(ASKED), "b": ragged(ASKED[::-1].copy())},
        {"a": ragged(weights)},
        training=False,
    )
    for at, (feature, keys, of_keys) in enumerate(
        [("a", ASKED, weights), ("b", ASKED[::-1], np.ones(7, np.float32))]
    ):
        each = items.lookup(keys)
        if unseen == "zeros":
            each[~np.isin(keys, SEEN)] = 0
        for bag, (first, last) in enumerate(itertools.pairwise(splits)):
            part, of_bag = of_keys[first:last], each[first:last]
            divisor = {"sum": 1, "mean": part.sum(), "sqrtn": np.sqrt((part**2).sum())}[combiner]
            expected = (part @ of_bag) / (divisor or 1)
            of_feature = found[:, at * DIM : (at + 1) * DIM] if concatenate else found[feature]
            close(of_feature[bag], expected)


@pytest.mark.parametrize("training", [False, None])
def test_a_frozen_table_has_initial_values(training: bool | None) -> None:
    """Its keys get no rows: the dense layers learn from those very values."""
    layer = tfhybrid.layers.Embedding(table(trainable=False), table="items")
    found = tf.function(lambda: layer(ASKED, training=training))()
    np.testing.assert_array_equal(found, layer.table.lookup(ASKED))
    assert layer.table.unseen == "initial"


def test_a_key_that_waits_for_admission_or_was_evicted() -> None:
    """Either has no row."""
    rules = {"admission": tfhybrid.Admission(2), "eviction": tfhybrid.Eviction(unseen_steps=20)}
    model, items = trained(functional, **rules)
    assert items.rows == len(SEEN)
    new = np.array([70])
    model.train_on_batch({"item": new[:, np.newaxis]}, np.ones(1))
    assert items.stats().waiting == 1
    keys = np.array([70, 3])
    initial = items.lookup(keys)
    found = model.predict({"item": keys[:, np.newaxis]}, verbose=0)
    close(found, np.array([[0], [initial[1].sum()]]))
    for _ in range(3000):
        if not items.read(keys[1:]).keys.size:
            break
        model.train_on_batch({"item": new[:, np.newaxis]}, np.ones(1))
    assert not items.read(keys[1:]).keys.size
    assert items.lookup(keys[1:]).any()
    assert not model.predict({"item": keys[1:, np.newaxis]}, verbose=0).any()


def test_rows_on_a_device() -> None:
    layer = tfhybrid.layers.Embedding(table(gather_on="device"), table="items")
    layer.build()
    rows = np.ones((len(SEEN), DIM), np.float32)
    layer.table.load(tfhybrid.checkpoint.ArrayRows(SEEN, rows))
    for compiled in (False, True):
        call = tf.function(layer.__call__) if compiled else layer
        initial = call(ASKED, training=True)
        np.testing.assert_array_equal(initial, layer.table.lookup(ASKED))
        found = call(ASKED, training=False)
        expected = np.isin(ASKED, SEEN)[:, np.newaxis] * rows[:1]
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(call(ASKED, training=True), initial)


def test_evaluation_logs_the_share_of_keys_without_a_row(caplog) -> None:
    model, _ = trained(functional)
    inputs = {"item": ASKED[:, np.newaxis]}
    with caplog.at_level(logging.INFO, "tfhybrid.metrics"):
        metrics.evaluate(model, [(inputs, LABELS[:, np.newaxis])] * 3)
    assert "57.14 % of 21 keys had no row" in caplog.text


def test_an_export_may_differ(tmp_path: Path) -> None:
    model, items = trained(functional)
    folder = export.saved_model(model, tmp_path, unseen="initial")
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    served = signature(item=tf.constant(ASKED[:, np.newaxis]))["output_0"]
    close(served, judged(items, ASKED, "initial"))


@pytest.mark.parametrize("unseen", ["mean", 0, True, ""])
def test_other_values_are_refused(unseen) -> None:
    message = r"unseen must be 'initial', 'zeros' or None\. Received: unseen="
    with pytest.raises(ConfigError, match=message):
        tfhybrid.TableConfig(4, unseen=unseen)
