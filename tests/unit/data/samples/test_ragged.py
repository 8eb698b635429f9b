from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tfhybrid.data import Batches, Clicks, Ragged, Shard
from tfhybrid.errors import ConfigError

lists_of_keys = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=12)


def ragged(lists):
    values = np.array([key for keys in lists for key in keys], np.int64)
    return Ragged.from_lengths(values, np.array([len(keys) for keys in lists], np.int64))


@given(lists_of_keys, st.data())
def test_indexing_is_that_of_a_list_of_lists(lists, data):
    column = ragged(lists)
    assert column.tolist() == lists
    assert len(column) == len(lists)

    cut = slice(*(data.draw(st.none() | st.integers(-15, 15)) for _ in range(2)))
    assert column[cut].tolist() == lists[cut]
    assert column[::2].tolist() == lists[::2]
    positions = st.lists(st.integers(0, len(lists) - 1)) if lists else st.just([])
    chosen = data.draw(positions)
    assert column[chosen].tolist() == [lists[i] for i in chosen]


@given(st.lists(lists_of_keys, min_size=1, max_size=4))
def test_columns_are_put_one_after_another(parts):
    joined = Ragged.concatenate([ragged(part) for part in parts])
    assert joined.tolist() == [keys for part in parts for keys in part]


@pytest.mark.parametrize(
    ("values", "splits", "message"),
    [
        ([1.0], [0, 1], "values must be int64 of one dimension. Received: float64"),
        ([1], [1], "splits must rise from 0"),
        ([1], [], "splits must be int64|splits must rise from 0"),
        ([1, 2], [0, 2, 1, 2], "splits must rise from 0"),
        ([1, 2], [0, 1], "end at the number of values, 2. Received: 1"),
    ],
)
def test_positions_that_are_none_are_refused(values, splits, message):
    with pytest.raises(ConfigError, match=message):
        Ragged(np.array(values), np.array(splits, np.int64))


def test_a_column_must_be_as_long_as_the_labels():
    with pytest.raises(ConfigError, match=r"'tags' must have n = 2 samples. Received: 1"):
        Clicks({"tags": ragged([[1]])}, np.zeros(2, np.float32))


def test_batches_of_ragged_features_are_ragged_tensors():
    lists = [[1], [], [2, 3], [4], [], []]
    clicks = Clicks({"tags": ragged(lists)}, np.zeros(6, np.float32))
    dataset = Batches(clicks, 4, seed=1, shuffle=False, shard=Shard(0, 1)).dataset()

    assert dataset.element_spec[0]["tags"] == tf.RaggedTensorSpec([None, None], tf.int64)
    seen = [features["tags"].to_list() for features, _ in dataset]
    assert seen == [lists[:4], lists[4:]]
