"""Checkpoints that add to each other: laid together exactly, and refused where one is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.unit.checkpoint.conftest import DIM, SLOTS, rows, write_checkpoint
from tfhybrid.checkpoint.stored import StoredCheckpoint, is_base, prune, steps
from tfhybrid.checkpoint.table_file import StoredRows, no_history
from tfhybrid.errors import CheckpointError


def stamped(keys: list[int], stamp: float) -> StoredRows:
    return StoredRows(
        np.array(keys, np.int64),
        np.full((len(keys), DIM), stamp, np.float32),
        np.full((len(keys), SLOTS, DIM), -stamp, np.float32),
        no_history(len(keys)),
    )


@pytest.fixture
def chain(tmp_path: Path) -> list[Path]:
    """Keys 1 to 6, then two deltas that change some and add others; full again, and its delta."""
    folders: list[Path] = []
    layers = [
        ([[1, 2, 3, 4], [5, 6]], 6),
        ([[2, 6, 9]], 7),
        ([[9, 1], [-7]], 8),
        ([[1, 2, 3]], 3),
        ([[3]], 3),
    ]
    for number, (blocks, in_all) in enumerate(layers):
        base = StoredCheckpoint.open(folders[-1]).base() if number not in (0, 3) else None
        stamps = [stamped(keys, number + 1) for keys in blocks]
        folders.append(
            write_checkpoint(tmp_path, 10 * (number + 1), stamps, base=base, in_all=in_all)
        )
    return folders


def found(folder: Path) -> list[tuple[int, float]]:
    """Keys and stamps in order."""
    blocks = StoredCheckpoint.open(folder).rows("item")
    for block in blocks:
        np.testing.assert_array_equal(block.states, -block.embeddings[:, np.newaxis].repeat(2, 1))
    return [
        (int(key), float(embedding[0]))
        for block in blocks
        for key, embedding in zip(block.keys, block.embeddings, strict=True)
    ]


def test_rows_are_the_last_ones_in_the_order_of_their_creation(chain):
    assert found(chain[0]) == [(key, 1) for key in range(1, 7)]
    assert found(chain[1]) == [(1, 1), (2, 2), (3, 1), (4, 1), (5, 1), (6, 2), (9, 2)]
    assert found(chain[2]) == [(1, 3), (2, 2), (3, 1), (4, 1), (5, 1), (6, 2), (9, 3), (-7, 3)]
    assert found(chain[4]) == [(1, 4), (2, 4), (3, 5)]


def test_a_chain_knows_its_place(chain):
    assert [StoredCheckpoint.open(folder).manifest.sequence for folder in chain] == [0, 1, 2, 0, 1]
    assert [len(StoredCheckpoint.open(folder).chain) for folder in chain] == [1, 2, 3, 1, 2]


def test_updates_come_oldest_first(chain):
    updates = StoredCheckpoint.open(chain[2]).updates("item")
    blocks = [block for update in updates for block in update.blocks]
    assert [block.keys.tolist() for block in blocks] == [
        [1, 2, 3, 4],
        [5, 6],
        [2, 6, 9],
        [9, 1],
        [-7],
    ]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_gap_is_refused(chain, missing):
    shutil.rmtree(chain[missing])
    with pytest.raises(CheckpointError, match=rf"needs its base: {chain[missing]} cannot be read"):
        StoredCheckpoint.open(chain[2])
    StoredCheckpoint.open(chain[4])


def test_another_base_of_the_same_step_is_refused(chain, tmp_path):
    shutil.rmtree(chain[1])
    write_checkpoint(tmp_path, 20, [stamped([2], 8)])
    with pytest.raises(CheckpointError, match="delta of a checkpoint other than"):
        StoredCheckpoint.open(chain[2])


def test_damage_in_a_base_is_found(chain):
    stored = StoredCheckpoint.open(chain[2])
    stored.check()
    path = chain[0] / "item-00000.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{path} is damaged"):
        stored.check()


def test_rows_that_are_missing_in_all_are_noticed(tmp_path):
    full = write_checkpoint(tmp_path, 1, [rows(0, 3)])
    base = StoredCheckpoint.open(full).base()
    delta = write_checkpoint(tmp_path, 2, [rows(1, 1)], base=base, in_all=4)
    with pytest.raises(CheckpointError, match=r"must have 4 rows, with its bases. Received: 3"):
        StoredCheckpoint.open(delta).rows("item")


def test_what_newer_ones_need_is_kept(chain, tmp_path):
    prune(tmp_path, None)
    assert steps(tmp_path) == [10, 20, 30, 40, 50]
    prune(tmp_path, 3)
    assert steps(tmp_path) == [10, 20, 30, 40, 50]
    prune(tmp_path, 2)
    assert steps(tmp_path) == [40, 50]
    prune(tmp_path, 1)
    assert steps(tmp_path) == [40, 50]


def test_a_broken_chain_does_not_keep_others_from_being_pruned(chain, tmp_path):
    shutil.rmtree(chain[3])
    prune(tmp_path, 1)
    assert steps(tmp_path) == [50]


def test_a_base_is_itself_and_nothing_else(chain, tmp_path):
    base = StoredCheckpoint.open(chain[0]).base()
    assert is_base(tmp_path, base)
    shutil.rmtree(chain[0])
    assert not is_base(tmp_path, base)
    write_checkpoint(tmp_path, 10, [stamped([1], 1)])
    assert not is_base(tmp_path, base)
