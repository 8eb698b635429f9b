"""The lookup in built-in operations, against the table itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tests.unit.export.stock_tables import EXTREMES, INITIALIZERS, table_of
from tfhybrid.export import streamed
from tfhybrid.export.sorted_keys import SortedKeys
from tfhybrid.export.stock_table import StockTable
from tfhybrid.store import RowBlock, Table

pytestmark = pytest.mark.usefixtures("job")


class Lookup(tf.Module):
    """What is saved: a table and the graph of its lookup."""

    def __init__(self, table: StockTable) -> None:
        super().__init__()
        self.table = table
        spec = tf.TensorSpec(None, tf.int64, "keys")
        self.lookup = tf.function(table.lookup, input_signature=[spec])


@pytest.fixture
def exported(tmp_path):
    """Exports a table, and returns what stock TensorFlow loads."""

    def export(table: Table, *, min_norm: float = 0.0, unseen: str = "initial"):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        sorted_keys = SortedKeys(table, min_norm=min_norm, directory=tmp_path)
        stock = StockTable(table, sorted_keys, mark=5, unseen=unseen)
        streamed.save(Lookup(stock), folder, None, {5: stock})
        return tf.saved_model.load(str(folder))

    return export


def lookup(loaded, keys: np.ndarray) -> np.ndarray:
    return loaded.lookup(tf.constant(keys, tf.int64)).numpy()


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_held_and_unseen_keys_read_the_bits_of_the_table(initializer, exported) -> None:
    rng = np.random.default_rng(1)
    held = np.unique(rng.integers(-10_000, 10_000, 5_000))
    table = table_of(rng.permutation(held), INITIALIZERS[initializer])
    keys = rng.integers(-12_000, 12_000, (700, 3))
    assert not np.isin(keys, held).all()
    np.testing.assert_array_equal(lookup(exported(table), keys), table.lookup(keys))


@pytest.mark.parametrize("held", range(len(EXTREMES)))
def test_every_key_is_a_key(held, exported) -> None:
    table = table_of(np.delete(EXTREMES, held))
    np.testing.assert_array_equal(lookup(exported(table), EXTREMES), table.lookup(EXTREMES))
    zeros = lookup(exported(table, unseen="zeros"), EXTREMES)
    assert np.flatnonzero(~zeros.any(axis=1)).tolist() == [held]


def test_unseen_keys_read_zeros_on_request(exported) -> None:
    table = table_of(np.array([7, 9]))
    values = lookup(exported(table, unseen="zeros"), np.array([9, 8, 7, 10]))
    np.testing.assert_array_equal(values[[0, 2]], table.lookup([9, 7]))
    assert not values[[1, 3]].any()


@pytest.mark.parametrize("unseen", ["initial", "zeros"])
def test_an_empty_table(unseen, exported) -> None:
    table = table_of(np.array([], np.int64))
    values = lookup(exported(table, unseen=unseen), EXTREMES)
    expected = table.lookup(EXTREMES) if unseen == "initial" else np.zeros((len(EXTREMES), 5))
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("shape", [(0,), (4,), (0, 3), (2, 3), (2, 0), (2, 1, 3)])
def test_keys_of_any_shape(shape, exported) -> None:
    table = table_of(np.arange(10))
    keys = np.random.default_rng(2).integers(0, 20, shape)
    values = lookup(exported(table), keys)
    assert values.shape == (*shape, 5)
    np.testing.assert_array_equal(values, table.lookup(keys))


def test_shapes_are_known_where_those_of_keys_are(tmp_path) -> None:
    table = table_of(np.arange(3))
    stock = StockTable(table, SortedKeys(table, min_norm=0.0, directory=tmp_path))
    spec = tf.TensorSpec([None, 4], tf.int64)
    graph = tf.function(stock.lookup).get_concrete_function(spec)
    assert graph.structured_outputs.shape.as_list() == [None, 4, 5]


def test_small_rows_are_left_out_on_request(exported) -> None:
    table = Table("item", tfhybrid.TableConfig(2, "zeros"))
    embeddings = np.array([[3, 4], [0.3, 0.4], [0, 0], [np.nan, 0]], np.float32)
    table.writer.write_rows(RowBlock(np.array([4, 3, 2, 1]), embeddings, None))
    loaded = exported(table, min_norm=1.0)
    assert loaded.table.keys.numpy().tolist() == [1, 4]
    np.testing.assert_array_equal(lookup(loaded, np.array([4, 3])), [[3, 4], [0, 0]])
    assert exported(table).table.keys.numpy().tolist() == [1, 2, 3, 4]
    # A norm that equals the limit stays.
    assert exported(table, min_norm=5.0).table.keys.numpy().tolist() == [1, 4]


def test_any_number_of_blocks_pieces_and_sorted_runs_makes_the_same_table(
    exported, monkeypatch
) -> None:
    monkeypatch.setattr("tfhybrid.export.stock_table._BLOCK_BYTES", 5 * 4 * 7)
    monkeypatch.setattr("tfhybrid.export.streamed._PIECE_BYTES", 5 * 4 * 20)
    monkeypatch.setattr("tfhybrid.export.streamed._MAX_PIECES", 5)
    monkeypatch.setattr("tfhybrid.export.sorted_keys._RUN_KEYS", 9)
    keys = np.random.default_rng(3).permutation(np.arange(-50, 50))
    table = table_of(keys)
    loaded = exported(table)
    np.testing.assert_array_equal(loaded.table.keys, np.arange(-50, 50))
    np.testing.assert_array_equal(lookup(loaded, keys), table.lookup(keys))
