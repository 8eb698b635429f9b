"""Small checkpoints, written without TensorFlow, to be damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tfhybrid.checkpoint.manifest import (
    DENSE,
    FORMAT,
    BaseEntry,
    FileEntry,
    Manifest,
    TableEntry,
)
from tfhybrid.checkpoint.table_file import StoredRows, arrays_of, digest, file_name, no_history

DIM, SLOTS = 3, 2
BLOCKS = (4, 3)


def rows(first: int, count: int) -> StoredRows:
    """Returns rows whose numbers tell their places."""
    keys = np.arange(first, first + count) - 2
    numbers = np.arange(count * DIM * (1 + SLOTS), dtype=np.float32) + 100 * first
    embeddings, states = np.split(numbers, [count * DIM])
    shaped = embeddings.reshape(count, DIM), states.reshape(count, SLOTS, DIM)
    return StoredRows(keys, *shaped, no_history(count))


def write_checkpoint(
    directory: Path,
    step: int,
    blocks: list[StoredRows],
    *,
    base: BaseEntry | None = None,
    in_all: int = 0,
) -> Path:
    """Writes a checkpoint of one table, `item`, a file per block.

    Args:
        directory: Where checkpoints are kept.
        step: Its step.
        blocks: The table's rows, or those that changed since the base.
        base: What a delta adds to.
        in_all: Rows in the table, if there is a base.
    """
    folder = directory / f"step-{step:010d}"
    folder.mkdir()
    save_file({"weights/0000": np.arange(6, dtype=np.float32).reshape(2, 3)}, folder / DENSE)
    names = [DENSE]
    for number, block in enumerate(blocks):
        names.append(file_name("item", number))
        save_file(arrays_of(block), folder / names[-1])
    entry = TableEntry(
        dim=DIM,
        rows=in_all or sum(len(block.keys) for block in blocks),
        version=7,
        initializer=[2, -0.05, 0.05],
        optimizer=[3, 0.0, 0.9, 0.999, 1e-7],
        state_slots=SLOTS,
        expected_rows=None,
        whole=base is None,
        digest=sum(map(digest, blocks)) % 2**64,
        files=names[1:],
    )
    Manifest(
        format=FORMAT,
        step=step,
        position={"epoch": 1, "step": 2},
        ranks=2,
        seed=5,
        optimizer="Adam",
        base=base,
        versions={"tfhybrid": "0.1.0"},
        tables={"item": entry},
        files={name: FileEntry.of(folder / name) for name in names},
    ).write(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of one table, `item`, in two files."""
    blocks = [rows(10 * number, count) for number, count in enumerate(BLOCKS)]
    return write_checkpoint(tmp_path, 7, blocks)
