from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow import keras

from tfhybrid.data import Batches, Clicks, Position, Shard
from tfhybrid.errors import ConfigError


def numbered(samples: int) -> Clicks:
    numbers = np.arange(samples)
    return Clicks({"number": numbers}, (numbers % 2).astype(np.float32))


def rank_batches(samples, batch_size, size, **options):
    return [
        Batches(numbered(samples), batch_size, seed=5, shard=Shard(rank, size), **options)
        for rank in range(size)
    ]


def numbers_of(batches, *position, **options):
    return [batch.features["number"].tolist() for batch in batches.batches(*position, **options)]


quick = settings(max_examples=40, deadline=None)


def worlds_up_to(samples):
    """Numbers of samples, batch sizes and numbers of ranks."""
    worlds = st.tuples(st.integers(1, samples), st.integers(1, 9), st.integers(1, 7))
    return worlds.filter(lambda world: world[0] >= world[2])


@given(worlds_up_to(200), st.booleans(), st.integers(0, 3))
@quick
def test_ranks_together_take_every_sample_once_in_equal_steps(world, shuffle, epoch):
    samples, batch_size, size = world
    ranks = [
        numbers_of(batches, epoch)
        for batches in rank_batches(samples, batch_size, size, shuffle=shuffle)
    ]

    assert len({len(steps) for steps in ranks}) == 1
    assert sorted(n for steps in ranks for batch in steps for n in batch) == list(range(samples))
    for step in zip(*ranks, strict=True):
        sizes = [len(batch) for batch in step]
        assert 1 <= min(sizes) <= max(sizes) <= min(min(sizes) + 1, batch_size + 1)


@given(worlds_up_to(200))
@quick
def test_dropping_the_remainder_leaves_full_batches_only(world):
    samples, batch_size, size = world
    if samples < batch_size * size:
        return
    for batches in rank_batches(samples, batch_size, size, drop_remainder=True):
        steps = numbers_of(batches)
        assert len(steps) == batches.steps_per_epoch == samples // (batch_size * size)
        assert {len(batch) for batch in steps} == {batch_size}


@given(st.integers(12, 100), st.sampled_from([1, 2, 3, 4, 6, 12]))
@quick
def test_global_batches_do_not_depend_on_the_number_of_ranks(samples, size):
    alone = numbers_of(Batches(numbered(samples), 12, seed=5, shard=Shard(0, 1)))
    ranks = [numbers_of(batches) for batches in rank_batches(samples, 12 // size, size)]
    together = [[*itertools.chain(*step)] for step in zip(*ranks, strict=True)]

    assert [*itertools.chain(*together)] == [*itertools.chain(*alone)]
    assert together[:-1] == alone[: len(together) - 1]


def test_epochs_are_shuffled_differently_and_reproducibly():
    (batches,) = rank_batches(50, 8, 1)
    first, second = numbers_of(batches, 0), numbers_of(batches, 1)

    assert first != second
    assert first != numbers_of(Batches(numbered(50), 8, seed=6, shard=Shard(0, 1)), 0)
    assert numbers_of(batches, 0) == first


@given(worlds_up_to(30), st.booleans())
@quick
def test_resuming_anywhere_equals_one_run(world, shuffle):
    batches = rank_batches(*world, shuffle=shuffle)[-1]
    whole = numbers_of(batches, epochs=2)

    for steps in range(len(whole)):
        position = Position(*json.loads(json.dumps(batches.position(steps))))
        rest = numbers_of(batches, *position, epochs=2 - position.epoch)
        assert rest == whole[steps:]


def test_a_dataset_is_typed_and_reads_the_same_each_time():
    clicks = Clicks(
        {"user": np.arange(10), "tags": np.arange(20).reshape(10, 2)},
        np.ones(10, np.float32),
        {"price": np.zeros(10, np.float32)},
    )
    dataset = Batches(clicks, 2, seed=1, shard=Shard(0, 2)).dataset(1, 1, epochs=2)

    features, label = dataset.element_spec
    assert features["user"] == tf.TensorSpec([None, 1], tf.int64)
    assert features["tags"] == tf.TensorSpec([None, 2], tf.int64)
    assert features["price"] == tf.TensorSpec([None, 1], tf.float32)
    assert label == tf.TensorSpec([None, 1], tf.float32)
    first, again = ([f["tags"].numpy().tolist() for f, _ in dataset] for _ in range(2))
    assert first == again
    assert len(first) == dataset.cardinality() == 5


def test_full_batches_have_a_static_shape():
    batches = Batches(numbered(10), 3, seed=1, drop_remainder=True, shard=Shard(0, 1))

    assert batches.dataset().element_spec[1].shape == [3, 1]


def test_fit_goes_through_all_epochs_and_resumes_within_one():
    batches = Batches(numbered(40), 8, seed=1, shard=Shard(0, 1))
    whole = numbers_of(batches, epochs=3)

    whole_run = recorded_fit(
        batches.dataset(epochs=None), epochs=3, steps_per_epoch=batches.steps_per_epoch
    )
    rest_of_epoch = recorded_fit(batches.dataset(1, 2), initial_epoch=1, epochs=2)

    assert whole_run == whole
    assert rest_of_epoch == whole[7:10]


def recorded_fit(dataset, **options):
    """What a model saw in `fit`, step by step."""
    seen = []

    class Recorder(keras.layers.Layer):
        def call(self, numbers):
            tf.py_function(lambda n: seen.append(n.numpy()[:, 0].tolist()), [numbers], [])
            return tf.cast(numbers, tf.float32)

    number = keras.Input((1,), dtype="int64", name="number")
    model = keras.Model(
        {"number": number}, keras.layers.Dense(1)(Recorder(dtype="float32", autocast=False)(number))
    )
    model.compile("sgd", "mse")
    seen.clear()
    model.fit(dataset, shuffle=False, verbose=0, **options)
    return seen


@pytest.mark.parametrize(
    "make",
    [
        lambda: Batches(numbered(3), 8, seed=1, shard=Shard(0, 4)),
        lambda: Batches(numbered(0), 8, seed=1, shard=Shard(0, 1)),
        lambda: Batches(numbered(9), 5, seed=1, drop_remainder=True, shard=Shard(0, 2)),
        lambda: Batches(numbered(9), 0, seed=1, shard=Shard(0, 1)),
        lambda: Batches(numbered(9), 2, seed=-1, shard=Shard(0, 1)),
        lambda: Batches(numbered(9), 3, seed=1, shard=Shard(0, 1)).dataset(0, 3),
        lambda: Batches(numbered(9), 3, seed=1, shard=Shard(0, 1)).dataset(-1, 0),
    ],
)
def test_what_can_never_work_is_refused(make):
    with pytest.raises(ConfigError, match="Received: "):
        make()
