"""`announce` on one host: keys are numbered, and rows found, before their lookup."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.support.roles.clusters import until
from tfhybrid.checkpoint import ArrayRows
from tfhybrid.core import native
from tfhybrid.errors import ConfigError, NotInitializedError
from tfhybrid.layers import Embedding, EmbeddingCollection

pytestmark = needs_keras_3

STEPS, SAMPLES, EPOCHS = 8, 24, 2
# Those that a data set was ahead of the first lookup, which says how keys are numbered.
BEFORE = 2 + 2
INT64 = np.iinfo(np.int64)
SIGNATURE = (
    {
        "clicked": tf.TensorSpec([None, 2], tf.int64),
        "bought": tf.RaggedTensorSpec([None, None], tf.int64),
        "user": tf.TensorSpec([None], tf.int32),
    },
    tf.TensorSpec([None, 1], tf.float32),
)
DECAY = tfhybrid.optimizers.Adam(0.1, weight_decay=0.1)
TABLES = {
    "decayed and evicted": {"optimizer": DECAY, "eviction": tfhybrid.Eviction(unseen_steps=2)},
    "every row, gathered on the device": {"lazy": False, "gather_on": "device"},
    "admitted": {"admission": 2},
    "frozen": {"trainable": False},
}


def batches() -> Iterator[tuple[dict[str, Any], tf.Tensor]]:
    """Yields batches whose keys repeat, grow, leave and come back; the lists of one are empty."""
    random = np.random.default_rng(0)
    for step in range(STEPS):
        first = 20 * (step % 5)
        keys = [0, -1, INT64.min, INT64.max, *range(first, first + 30)]
        lengths = np.zeros(SAMPLES, int) if step == 3 else random.integers(0, 4, SAMPLES)
        bought = tf.constant(random.choice(keys, lengths.sum()), tf.int64)
        features = {
            "clicked": tf.constant(random.choice(keys, (SAMPLES, 2)), tf.int64),
            "bought": tf.RaggedTensor.from_row_lengths(bought, lengths),
            "user": tf.constant(random.integers(0, 9, SAMPLES), tf.int32),
        }
        yield features, tf.constant(random.integers(0, 2, (SAMPLES, 1)), tf.float32)


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(batches, output_signature=SIGNATURE)


def collection_of(**options: Any) -> EmbeddingCollection:
    """Returns a layer with one table for two features, one of them of bags, and one for a third."""
    config = tfhybrid.TableConfig(dim=4, **options)
    bag = tfhybrid.TableConfig(dim=4, combiner="mean", **options)
    features = {"clicked": config, "bought": bag, "user": config}
    return EmbeddingCollection(features, shared={"item": ["clicked", "bought"]}, concatenate=True)


def counts() -> np.ndarray:
    """Returns the lookups of keys that were numbered ahead, and of other keys."""
    stats = tfhybrid.pass_stats()
    return np.array([stats.ahead_hits, stats.ahead_misses])


def fitted(
    table: dict[str, Any], compiling: dict[str, Any], *, announced: bool, passes: int = 1
) -> tuple[list[np.ndarray], list[int]]:
    """Trains in a job of its own; returns digests, weights and losses, and counts."""
    tfhybrid.init()
    try:
        return trained(table, compiling, announced=announced, passes=passes)
    finally:
        tfhybrid.shutdown()
        keras.backend.clear_session()


def trained(
    table: dict[str, Any], compiling: dict[str, Any], *, announced: bool, passes: int
) -> tuple[list[np.ndarray], list[int]]:
    layer = collection_of(**table)
    inputs = {
        "clicked": keras.Input((2,), dtype="int64", name="clicked"),
        "bought": keras.Input((None,), dtype="int64", ragged=True, name="bought"),
        "user": keras.Input((1,), dtype="int64", name="user"),
    }
    keras.utils.set_random_seed(1)
    model = keras.Model(inputs, keras.layers.Dense(1, name="score")(layer(inputs)))
    adagrad = keras.optimizers.Adagrad(0.1)
    optimizer = tfhybrid.DistributedOptimizer(adagrad, backward_passes_per_step=passes)
    model.compile(optimizer, "mse", **compiling)
    data = tfhybrid.data.announce(dataset(), 2, layer) if announced else dataset()
    before = counts()
    history = model.fit(data, epochs=EPOCHS, validation_data=data, verbose=0)
    found = [np.array([table.digest() for table in layer.tables.values()])]
    found += [np.array(weight) for weight in model.get_layer("score").get_weights()]
    found += [np.array(of_epochs) for of_epochs in history.history.values()]
    return found, list(counts() - before)


@pytest.mark.parametrize(
    ("table", "compiling", "passes"),
    [
        *((table, {}, 1) for table in TABLES.values()),
        ({}, {"steps_per_execution": 3}, 2),
        ({}, {"run_eagerly": True}, 1),
        ({"storage": "files"}, {}, 1),
    ],
    ids=[*TABLES, "several steps and passes at once", "eager", "files"],
)
def test_no_bit_depends_on_it(table, compiling, passes, tmp_path) -> None:
    if table.get("storage") == "files":
        table = {"storage": tfhybrid.FileTier(tmp_path, cache_bytes=1 << 16)}
    plain = table | {"gather_on": "host"}
    wanted, without = fitted(plain, compiling, announced=False, passes=passes)
    found, (hits, misses) = fitted(table, compiling, announced=True, passes=passes)
    for mine, of_plain in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, of_plain)
    assert without == [0, 0]
    # In eager mode, a lookup of an evaluation counts too: it cannot see that no gradient follows.
    lookups = EPOCHS * STEPS * (2 if "run_eagerly" in compiling else 1)
    if table.get("trainable", True):
        assert lookups - BEFORE <= hits < lookups
    assert misses <= BEFORE


class ByHand:
    """A layer whose batches are numbered ahead when a test says so."""

    def __init__(self, layer: EmbeddingCollection) -> None:
        self.layer = layer
        self.batches = [features for features, _ in batches()]
        self.read(0)
        self._before = counts()

    def number(self, step: int, most: int = 4) -> None:
        self.layer.number_ahead(self.batches[step], most)

    def read(self, step: int) -> np.ndarray:
        """Returns the embeddings of a batch as training reads them."""
        with tf.GradientTape():
            return self.layer(self.batches[step]).numpy()

    def counts(self) -> tuple[int, int]:
        hits, misses = counts() - self._before
        return int(hits), int(misses)


@pytest.fixture
def by_hand(job) -> ByHand:
    return ByHand(collection_of())


def rows_in(order: np.ndarray, seed: int) -> ArrayRows:
    return ArrayRows(order, np.random.default_rng(seed).normal(size=(len(order), 4)).astype("f4"))


def test_rows_that_were_loaded_in_between_are_found_anew(by_hand) -> None:
    """Other rows of the same keys, in another order, more of them, and fewer."""
    keys = np.array([-1, INT64.min, INT64.max, *range(60)])
    for seed, order in enumerate((keys, keys[::-1].copy(), np.arange(-5, 300), keys[:7])):
        by_hand.number(1)
        for table in by_hand.layer.tables.values():
            table.writer.clear()
            table.load(rows_in(order, seed))
        found = by_hand.read(1)
        np.testing.assert_array_equal(found, by_hand.read(1))  # the second one finds them itself
    assert by_hand.counts() == (4, 4)


def test_a_lookup_of_other_keys_is_as_ever_and_counted(by_hand) -> None:
    by_hand.number(1)
    by_hand.number(2)
    assert by_hand.counts() == (0, 0)
    expected = by_hand.read(3)
    assert by_hand.counts() == (0, 1)
    np.testing.assert_array_equal(by_hand.read(3), expected)
    by_hand.read(2)
    by_hand.read(1)
    assert by_hand.counts() == (2, 2)
    by_hand.read(1)  # a batch is used up
    assert by_hand.counts() == (2, 3)


def test_the_oldest_batch_is_dropped(by_hand) -> None:
    for step in (1, 2, 3):
        by_hand.number(step, most=2)
    hits = []
    for step in (1, 2, 3):
        by_hand.read(step)
        hits.append(by_hand.counts()[0])
    assert hits == [0, 1, 2]


def test_keys_are_compared_one_by_one(by_hand) -> None:
    """Batches that differ in one key of the last feature, and in nothing else."""
    by_hand.number(1)
    other = dict(by_hand.batches[1])
    other["user"] = tf.concat([other["user"][:-1], [77]], axis=0)
    by_hand.batches[2] = other
    found = by_hand.read(2)
    assert by_hand.counts() == (0, 1)
    np.testing.assert_array_equal(found[-1:, -4:], by_hand.layer.tables["user"].lookup([77]))
    assert not np.array_equal(found, by_hand.read(1))


@pytest.mark.usefixtures("job")
def test_keys_are_numbered_while_the_model_computes() -> None:
    """A batch is made when the model of the one two before has begun, which waits for its keys."""
    layer = collection_of()
    begun = [threading.Event() for _ in range(STEPS)]

    def source() -> Iterator[tuple[dict[str, Any], tf.Tensor]]:
        for step, batch in enumerate(batches()):
            assert step < 2 or begun[step - 2].wait(60)
            yield batch

    data = tf.data.Dataset.from_generator(source, output_signature=SIGNATURE)
    for step, (features, _) in enumerate(tfhybrid.data.announce(data, 2, layer)):
        layer(features, training=True)
        before = native.phase_times()["ahead"]
        begun[step].set()
        if BEFORE <= step < STEPS - 2:
            until(lambda before=before: native.phase_times()["ahead"] > before)
    assert step == STEPS - 1


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("lists", ["dense", "ragged"])
def test_one_layer_for_two_features_by_name(lists) -> None:
    """Lists of one layer are padded and masked, as Keras has them."""
    config = tfhybrid.TableConfig(dim=4)
    layer = Embedding(config, table="item", padded=True, mask_key=0)
    features = ["seen", "liked"]
    keys = {name: np.random.default_rng(len(name)).integers(0, 5, (64, 3)) for name in features}
    for of_feature in keys.values():
        of_feature[:, 0] += 1  # Keras divides by the keys that are not masked
    data = tf.data.Dataset.from_tensor_slices((keys, np.ones((64, 1), "f4"))).batch(8)
    ragged = lists == "ragged"
    if ragged:
        data = data.map(lambda x, y: ({k: tf.RaggedTensor.from_tensor(x[k]) for k in x}, y))
    inputs = {k: keras.Input((None,), dtype="int64", name=k, ragged=ragged) for k in features}
    pooled = [keras.layers.GlobalAveragePooling1D()(layer(each)) for each in inputs.values()]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.concatenate(pooled)))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    before = counts()
    announced = tfhybrid.data.announce(data, 2, dict.fromkeys(features, layer))
    model.fit(announced, epochs=2, verbose=0)
    hits, misses = counts() - before
    assert hits >= 2 * (16 - BEFORE)
    assert misses <= 2 * BEFORE


@pytest.mark.usefixtures("job")
def test_data_that_have_not_what_a_layer_reads() -> None:
    layer = collection_of()
    numbers = tf.data.Dataset.range(8).batch(2)
    with pytest.raises(ConfigError, match=r"a dict of features.*Received: TensorSpec"):
        tfhybrid.data.announce(numbers, 2, layer)
    words = tf.data.Dataset.from_tensor_slices({name: [["a"]] for name in layer.features})
    with pytest.raises(ConfigError, match=r"'clicked' must be int64 or int32.*Received: string"):
        tfhybrid.data.announce(words, 2, layer)
    others = tf.data.Dataset.from_tensor_slices({"other": [1, 2]})
    announced = tfhybrid.data.announce(others, 2, layer)
    assert [int(batch["other"]) for batch in announced] == [1, 2]
    assert announced.element_spec == others.element_spec
    assert int(announced.cardinality()) == 2


def test_it_needs_a_job() -> None:
    with pytest.raises(NotInitializedError):
        tfhybrid.data.announce(dataset(), 2, collection_of())
