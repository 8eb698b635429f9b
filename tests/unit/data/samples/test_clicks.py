from __future__ import annotations

import numpy as np
import pytest

from tfhybrid.data import Clicks
from tfhybrid.errors import ConfigError


def clicks(samples: int) -> Clicks:
    numbers = np.arange(samples)
    return Clicks(
        {"user": numbers, "tags": np.stack([numbers, -numbers], axis=1)},
        (numbers % 2).astype(np.float32),
        {"price": (numbers / 10).astype(np.float32)},
    )


def test_take_keeps_the_columns_of_a_sample_together():
    taken = clicks(10).take([7, 3])

    assert len(taken) == 2
    assert taken.features["user"].tolist() == [7, 3]
    assert taken.features["tags"].tolist() == [[7, -7], [3, -3]]
    assert taken.label.tolist() == [1, 1]
    np.testing.assert_allclose(taken.dense["price"], [0.7, 0.3], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 11])
def test_shards_hold_every_sample_once_and_differ_by_one_at_most(size):
    shards = [clicks(10).shard(rank, size) for rank in range(size)]

    assert np.concatenate([s.features["user"] for s in shards]).tolist() == list(range(10))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_concatenate_undoes_sharding():
    joined = Clicks.concatenate([clicks(10).shard(rank, 3) for rank in range(3)])

    np.testing.assert_array_equal(joined.features["tags"], clicks(10).features["tags"])
    np.testing.assert_array_equal(joined.dense["price"], clicks(10).dense["price"])


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ConfigError, match=r"Received: 3 of 3\."):
        clicks(10).shard(3, 3)


@pytest.mark.parametrize(
    ("features", "label", "dense"),
    [
        ({"user": np.zeros(3, np.float32)}, np.zeros(3, np.float32), {}),
        ({"user": np.zeros(3, np.int32)}, np.zeros(3, np.float32), {}),
        ({"user": np.zeros(2, np.int64)}, np.zeros(3, np.float32), {}),
        ({"user": np.zeros((3, 1, 1), np.int64)}, np.zeros(3, np.float32), {}),
        ({}, np.zeros(3, np.int32), {}),
        ({}, np.zeros((3, 1), np.float32), {}),
        ({}, np.zeros(3, np.float32), {"price": np.zeros(3)}),
        ({"a": np.zeros(3, np.int64)}, np.zeros(3, np.float32), {"a": np.zeros(3, np.float32)}),
    ],
)
def test_columns_that_do_not_fit_are_refused(features, label, dense):
    with pytest.raises(ConfigError, match="Received: "):
        Clicks(features, label, dense)
