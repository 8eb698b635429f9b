"""Data sets of `from_nodes` without data nodes: positions, and groups of one label value."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid.data import NodeBatches, Position, Shard, from_nodes
from tfhybrid.errors import ConfigError

BATCH, SAMPLES = 4, 22


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    tfhybrid.init()
    yield
    tfhybrid.shutdown()


def data(_: Shard) -> tf.data.Dataset:
    """In another order in each epoch."""
    numbers = np.arange(SAMPLES)
    bags = tf.RaggedTensor.from_row_lengths(np.arange(SAMPLES * 2), [2] * SAMPLES)
    made = tf.data.Dataset.from_tensor_slices(({"ad": numbers, "bags": bags}, numbers % 3))
    return made.shuffle(SAMPLES, seed=1).batch(BATCH)


def endless(shard: Shard) -> tf.data.Dataset:
    return data(shard).repeat()


def numbers_in(batches: tf.data.Dataset) -> list[list[int]]:
    return [features["ad"].numpy().tolist() for features, _ in batches]


def test_batches_begin_at_a_position() -> None:
    made = data(Shard(0, 1))
    epochs = [numbers_in(made) for _ in range(3)]
    assert epochs[0] != epochs[1]
    batches = NodeBatches(data, [])
    assert batches.steps_per_epoch == len(epochs[0])
    following = batches.dataset(1)
    assert [numbers_in(following), numbers_in(following)] == epochs[1:]
    assert numbers_in(batches.dataset(1, 2)) == epochs[1][2:]


def test_groups_have_all_samples_once() -> None:
    found = []
    for features, labels in from_nodes(data, [], group_by="label"):
        assert len(set(labels.numpy().tolist())) == 1
        assert features["bags"].to_list() == [[2 * ad, 2 * ad + 1] for ad in features["ad"].numpy()]
        found += features["ad"].numpy().tolist()
    assert sorted(found) == list(range(SAMPLES))


def test_positions_need_epochs() -> None:
    with pytest.raises(ConfigError, match="one without end"):
        _ = NodeBatches(endless, []).steps_per_epoch
    with pytest.raises(ConfigError, match="epoch=0, step=3"):
        from_nodes(data, [], divide_by="file", position=Position(0, 3))
    with pytest.raises(ConfigError, match="Received: 'user'"):
        from_nodes(data, [], group_by="user")


@pytest.mark.parametrize("reads", [from_nodes, NodeBatches])
def test_deliveries_have_old_names(reads) -> None:
    with pytest.warns(DeprecationWarning, match="`join` is deprecated: use `delivery`") as warned:
        reads(data, [], join="unasked")
    assert "`unasked` is deprecated: use `push`" in str(warned[1].message)
    assert {each.filename for each in warned} == {__file__}


def test_deliveries_have_three_names() -> None:
    with pytest.raises(ConfigError, match=r"delivery one of \('pull', 'notify', 'push'\)"):
        from_nodes(data, [], delivery="send")


@pytest.mark.parametrize("staleness", [-1, 1.0, "1", True, None])
def test_a_staleness_that_is_no_whole_number_is_refused(staleness: object) -> None:
    with pytest.raises(ConfigError, match=f"0 or more. Received: {staleness!r}"):
        from_nodes(data, [], staleness=staleness)  # type: ignore[arg-type]


def test_evaluation_has_no_staleness() -> None:
    with pytest.raises(ConfigError, match=r"trains=False\. Received: staleness=2"):
        from_nodes(data, [], trains=False, staleness=2)


def test_without_data_nodes_nothing_is_missing() -> None:
    assert numbers_in(from_nodes(data, [], staleness=4)) == numbers_in(data(Shard(0, 1)))


@needs_keras_3
def test_layers_that_mask_a_key_are_refused_by_name() -> None:
    """Data nodes send numbers that stand for keys, which no layer can compare with its key."""
    options = {"config": tfhybrid.TableConfig(2), "padded": True}
    lists = tfhybrid.layers.Embedding(table="bags", **options)
    from_nodes(data, [lists])
    masking = tfhybrid.layers.Embedding(table="ad", mask_key=0, **options)
    with pytest.raises(ConfigError, match=r"leave out mask_key. Received: .*\{'ad': 0\}"):
        from_nodes(data, [lists, masking])
