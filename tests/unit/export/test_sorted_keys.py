"""Keys that are sorted on disk, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tfhybrid
from tests.unit.export.stock_tables import EXTREMES, table_of
from tfhybrid.export.sorted_keys import SortedKeys

pytestmark = pytest.mark.usefixtures("job")


@pytest.mark.parametrize("run_keys", [1, 2, 10, 199, 200, 201])
@pytest.mark.parametrize("block_keys", [1, 64, 1000])
@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_blocks_are_full_and_in_order(run_keys, block_keys, order, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tfhybrid.export.sorted_keys._RUN_KEYS", run_keys)
    rng = np.random.default_rng(run_keys)
    wanted = np.union1d(rng.choice(10**6, 193, replace=False), EXTREMES)
    keys = {
        "ascending": wanted,
        "descending": wanted[::-1],
        "random": rng.permutation(wanted),
    }[order]
    sorted_keys = SortedKeys(table_of(keys, dim=1), min_norm=0.0, directory=tmp_path)
    blocks = list(sorted_keys.blocks(block_keys))
    np.testing.assert_array_equal(np.concatenate(blocks), wanted)
    assert {len(block) for block in blocks[:-1]} <= {block_keys}
    assert sorted_keys.count == len(wanted)
    assert list(tmp_path.iterdir()) == []


def test_no_keys_are_no_blocks(tmp_path) -> None:
    table = table_of(np.array([], np.int64))
    sorted_keys = SortedKeys(table, min_norm=0.0, directory=tmp_path)
    assert (sorted_keys.count, list(sorted_keys.blocks(8))) == (0, [])


def test_a_table_beyond_32_bits_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tfhybrid.export.sorted_keys._MAX_ROWS", 3)
    table = table_of(np.arange(4))
    with pytest.raises(tfhybrid.errors.ExportError, match="Received: 4 in 'item'"):
        SortedKeys(table, min_norm=0.0, directory=tmp_path)
