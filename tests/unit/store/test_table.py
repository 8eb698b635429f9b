from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tfhybrid
from tests.unit.store.adagrad_table import DIM, adagrad_table, block
from tfhybrid.core import native
from tfhybrid.errors import ConfigError, NameTakenError, NotInitializedError
from tfhybrid.store import RowBlock, Table

pytestmark = pytest.mark.usefixtures("job")

INT64 = np.iinfo(np.int64)


@pytest.fixture
def table() -> Table:
    return adagrad_table("item")


def test_lookup_returns_the_shape_of_the_keys_and_the_dim(table) -> None:
    assert table.lookup([]).shape == (0, DIM)
    assert table.lookup(5).shape == (DIM,)
    assert table.lookup(np.zeros((2, 4), np.int8)).shape == (2, 4, DIM)
    assert table.lookup([1]).dtype == np.float32


def test_lookup_of_unseen_keys_returns_initial_values(table) -> None:
    keys = np.array([0, -1, INT64.min, INT64.max])
    expected = native.initial_rows(2, -0.05, 0.05, native.table_seed(0, "item"), keys, DIM)
    np.testing.assert_array_equal(table.lookup(keys), expected)
    assert table.stats().rows == 0


@pytest.mark.parametrize(
    "keys", [[1.0], ["1"], [True], [None], [2**63], np.ma.array([5, 7], mask=[0, 1])]
)
def test_keys_that_are_no_whole_numbers_are_refused(table, keys) -> None:
    with pytest.raises(ConfigError, match="Keys must be whole numbers"):
        table.lookup(keys)


def test_written_rows_are_read_back_in_creation_order(table) -> None:
    rows = block([5, INT64.min, 0, -1, INT64.max])
    table.writer.write_rows(rows)
    np.testing.assert_array_equal(table.lookup(rows.keys), rows.embeddings)
    blocks = list(table.blocks(block_rows=2, states=True))
    assert [len(part.keys) for part in blocks] == [2, 2, 1]
    for field in ("keys", "embeddings", "states"):
        joined = np.concatenate([getattr(part, field) for part in blocks])
        np.testing.assert_array_equal(joined, getattr(rows, field))


def test_blocks_leave_out_states_that_nobody_asked_for(table) -> None:
    assert list(table.blocks()) == []
    table.writer.write_rows(block([1]))
    (part,) = table.blocks()
    assert part.states is None


def test_writing_overwrites_and_the_last_of_equal_keys_wins(table) -> None:
    table.writer.write_rows(block([1, 2]))
    rows = block([2, 3, 2])
    table.writer.write_rows(rows)
    assert table.stats().rows == 3
    np.testing.assert_array_equal(table.lookup([2, 3]), rows.embeddings[[2, 1]])


def test_rows_written_without_states_start_fresh(table) -> None:
    rows = block([1])
    table.writer.write_rows(RowBlock(rows.keys, rows.embeddings, None))
    (part,) = table.blocks(states=True)
    np.testing.assert_array_equal(part.states, np.full((1, 1, DIM), 0.1, np.float32))


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: RowBlock(rows.keys[:, np.newaxis], rows.embeddings, rows.states),
        lambda rows: RowBlock(rows.keys[:1], rows.embeddings, rows.states),
        lambda rows: RowBlock(rows.keys, rows.embeddings[:, :2], rows.states),
        lambda rows: RowBlock(rows.keys, rows.embeddings, rows.states[:, 0]),
    ],
    ids=["keys_of_two_axes", "too_few_keys", "another_dim", "states_without_slots"],
)
def test_rows_of_another_shape_are_refused(table, damage: Callable) -> None:
    with pytest.raises(ConfigError, match="Rows of table 'item' are keys"):
        table.writer.write_rows(damage(block([1, 2])))
    assert table.stats().rows == 0


def test_many_rows_grow_the_table(table) -> None:
    keys = np.random.default_rng(0).permutation(50_000)
    table.writer.write_rows(block(keys))
    stats = table.stats()
    assert stats.rows == 50_000
    assert stats.chunks > 1
    assert stats.bytes >= stats.embedding_bytes + stats.state_bytes + stats.index_bytes
    assert stats.embedding_bytes >= 50_000 * DIM * 4
    assert 0.1 < stats.load_factor < 1.0
    assert stats.nan_rows is None
    np.testing.assert_array_equal(table.lookup(keys[-5:]), block(keys).embeddings[-5:])


def test_stats_count_new_rows_since_the_last_call(table) -> None:
    assert table.stats().new_rows == 0
    table.writer.write_rows(block(range(7)))
    assert table.rows == 7
    assert table.stats().new_rows == 7
    table.writer.write_rows(block(range(5, 9)))
    assert table.stats().new_rows == 2
    table.writer.clear()
    assert table.stats().new_rows == 0


def test_stats_count_rows_with_a_nan(table) -> None:
    rows = block(range(20_000))
    rows.embeddings[[0, 77, 19_999], [0, DIM - 1, 1]] = np.nan
    rows.embeddings[5] = np.inf
    table.writer.write_rows(rows)
    assert table.stats(count_nan=True).nan_rows == 3


def test_digest_is_equal_for_equal_rows_in_any_order() -> None:
    def digest(rows: RowBlock) -> int:
        tfhybrid.shutdown()
        tfhybrid.init()
        table = adagrad_table("item")
        table.writer.write_rows(rows)
        return table.digest()

    rows = block([4, 5, 6])
    turned = RowBlock(rows.keys[::-1], rows.embeddings[::-1], rows.states[::-1])
    assert digest(rows) == digest(turned)
    others = [
        RowBlock(rows.keys + 1, rows.embeddings, rows.states),
        RowBlock(rows.keys, np.nextafter(rows.embeddings, 9), rows.states),
        RowBlock(rows.keys, rows.embeddings, np.nextafter(rows.states, 9)),
        RowBlock(rows.keys, rows.embeddings[::-1], rows.states),
    ]
    assert len({digest(other) for other in [rows, *others]}) == 5


def test_the_version_continues_from_where_it_is_set(table) -> None:
    table.set_version(41)
    assert table.stats().version == 41


def test_a_name_is_taken_once(table) -> None:
    with pytest.raises(NameTakenError, match="'item'"):
        Table("item", tfhybrid.TableConfig(DIM))


@pytest.mark.parametrize("name", ["it\0em", "\0", "it\ud800em"])
def test_a_name_is_text(table, name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"A table's name must be text without zeros\. Received: '"
    ):
        Table(name, tfhybrid.TableConfig(DIM))


def test_a_table_wants_init_first() -> None:
    tfhybrid.shutdown()
    with pytest.raises(NotInitializedError, match=r"tfhybrid\.init\(\)"):
        Table("item", tfhybrid.TableConfig(DIM))


def test_a_table_of_an_ended_job_says_so(table) -> None:
    tfhybrid.shutdown()
    with pytest.raises(tfhybrid.errors.StoreError, match=r"tfhybrid\.init\(\)"):
        table.lookup([1])


def test_quantiles_of_norms_are_those_of_the_rows(table) -> None:
    keys = np.arange(101)
    table.writer.write_rows(
        RowBlock(keys, np.outer(keys, [0.6, 0.8, 0.0]).astype(np.float32), None)
    )
    table.writer.write_rows(RowBlock(np.array([999]), np.full((1, DIM), np.nan, np.float32), None))
    found = table.stats(norm_quantiles=[0, 0.5, 0.99, 1]).norm_quantiles
    assert found == pytest.approx({0: 0.0, 0.5: 50.0, 0.99: 99.0, 1: 100.0})
    assert table.stats().norm_quantiles == {}


def test_quantiles_of_a_large_table_are_of_rows_that_are_spread_evenly(table) -> None:
    keys = np.arange(2_000_000)
    embeddings = np.zeros((len(keys), DIM), np.float32)
    embeddings[:, 0] = keys
    table.writer.write_rows(RowBlock(keys, embeddings, None))
    found = table.stats(norm_quantiles=[0.25, 0.5]).norm_quantiles
    assert found == pytest.approx({0.25: 500_000, 0.5: 1_000_000}, rel=0.02)


def test_quantiles_of_no_rows_and_of_none_that_there_are(table) -> None:
    assert np.isnan(table.stats(norm_quantiles=[0.5]).norm_quantiles[0.5])
    with pytest.raises(ConfigError, match=r"from 0 to 1\. Received: norm_quantiles=\[50\]"):
        table.stats(norm_quantiles=[50])


def test_rows_are_read_by_key(table) -> None:
    rows = block([5, INT64.min, 0, -1])
    table.writer.write_rows(rows)
    found = table.read([-1, 77, 5, INT64.max, 5], states=True)
    assert found.keys.tolist() == [-1, 5, 5]
    np.testing.assert_array_equal(found.embeddings, rows.embeddings[[3, 0, 0]])
    np.testing.assert_array_equal(found.states, rows.states[[3, 0, 0]])
    assert found.history is None
    assert table.read([]).keys.shape == table.read([9]).keys.shape == (0,)
    assert table.read([5]).states is None
    with pytest.raises(ConfigError, match="Keys must be whole numbers"):
        table.read([1.5])


def test_histories_are_read_and_written_by_key() -> None:
    config = tfhybrid.TableConfig(DIM, eviction=tfhybrid.Eviction(unseen_steps=9))
    table = Table("forgets", config)
    history = np.array([(2.0, 7, -5), (1.0, 8, 2**40)], native.HISTORY)
    embeddings = np.ones((2, DIM), np.float32)
    table.writer.write_rows(RowBlock(np.array([3, 4]), embeddings, None, history))
    table.writer.write_rows(RowBlock(np.array([5]), embeddings[:1], None))
    found = table.read([4, 6, 3, 5], states=True)
    assert found.keys.tolist() == [4, 3, 5]
    assert found.history.tolist() == [*history[::-1].tolist(), (1.0, 0, native.NO_TIME)]
    table.writer.remove_keys(np.array([3, 6, 3]))
    assert table.read([3, 4, 5]).keys.tolist() == [4, 5]
    with pytest.raises(ConfigError, match=r"and a history \[n\]"):
        table.writer.write_rows(RowBlock(np.array([5]), embeddings[:1], None, history))
