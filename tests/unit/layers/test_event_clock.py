from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid

NO_TIME = -(2**63)


@pytest.fixture
def clock() -> tfhybrid.layers.EventClock:
    return tfhybrid.layers.EventClock()


def test_it_passes_on_whatever_it_is_given(clock):
    features = {"a": tf.ones([3, 1]), "b": [tf.constant([1, 2]), tf.constant("x")]}
    for training in (True, False):
        passed = clock(features, event_time=tf.constant([5]), training=training)
        tf.nest.assert_same_structure(features, passed)
        for before, after in zip(tf.nest.flatten(features), tf.nest.flatten(passed), strict=True):
            assert np.all(before.numpy() == after.numpy())


def test_it_notes_the_latest_time_of_training_alone(clock):
    assert int(clock.latest) == NO_TIME
    clock(tf.ones(2), event_time=tf.constant([7, 3], tf.int64), training=True)
    assert int(clock.latest) == 7
    clock(tf.ones(2), event_time=tf.constant([[5], [4]]), training=True)
    clock(tf.ones(2), event_time=tf.constant([99]), training=False)
    clock(tf.ones(0), event_time=tf.zeros([0], tf.int64), training=True)
    assert int(clock.latest) == 7
    clock.advance(8)
    clock.advance(-(2**62))
    assert int(clock.latest) == 8


@pytest.mark.usefixtures("job")
def test_rows_go_by_the_time_of_the_batches_that_fit_reads(clock):
    """Keys 0 to 9 come at the times 0 to 90; a row goes 30 after its last."""
    eviction = tfhybrid.Eviction(unseen_time=30, every_steps=1)
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in ("item", "seconds")}
    features = clock({"item": inputs["item"]}, event_time=inputs["seconds"])
    layer = tfhybrid.layers.EmbeddingCollection(
        {"item": tfhybrid.TableConfig(4, eviction=eviction)}
    )
    x = keras.layers.Flatten()(layer(features)["item"])
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(tfhybrid.DistributedOptimizer("sgd", event_clock=clock), "mse")
    keys = np.arange(10)
    model.fit(
        {"item": keys, "seconds": 10 * keys}, np.ones(10), batch_size=1, shuffle=False, verbose=0
    )
    (block,) = layer.tables["item"].blocks()
    assert sorted(block.keys) == [7, 8, 9]
    assert int(clock.latest) == 90
    model.evaluate({"item": keys, "seconds": 1000 + keys}, np.ones(10), verbose=0)
    assert int(clock.latest) == 90
