"""Small checkpoints, written without TensorFlow, to be damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tfhybrid.checkpoint.manifest import DENSE, FORMAT, FileEntry, Manifest, Position, TableEntry
from tfhybrid.checkpoint.table_file import Rows, digest, file_name

DIM, SLOTS = 3, 2
BLOCKS = (4, 3)


def rows(first: int, count: int) -> Rows:
    """Returns rows whose numbers tell their places."""
    keys = np.arange(first, first + count) - 2
    numbers = np.arange(count * DIM * (1 + SLOTS), dtype=np.float32) + 100 * first
    embeddings, states = np.split(numbers, [count * DIM])
    return Rows(keys, embeddings.reshape(count, DIM), states.reshape(count, SLOTS, DIM))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of one table, `item`, in two files."""
    folder = tmp_path / "step-0000000007"
    folder.mkdir()
    save_file({"weights/0000": np.arange(6, dtype=np.float32).reshape(2, 3)}, folder / DENSE)
    names, total = [DENSE], 0
    for number, count in enumerate(BLOCKS):
        block = rows(10 * number, count)
        names.append(file_name("item", number))
        save_file(block._asdict(), folder / names[-1])
        total += digest(block)
    entry = TableEntry(
        dim=DIM,
        rows=sum(BLOCKS),
        version=7,
        initializer=[2, -0.05, 0.05],
        optimizer=[3, 0.0, 0.9, 0.999, 1e-7],
        state_slots=SLOTS,
        digest=total % 2**64,
        files=names[1:],
    )
    files = {name: FileEntry.of(folder / name) for name in names}
    versions = {"tfhybrid": "0.1.0"}
    Manifest(FORMAT, 7, Position(1, 2), 2, 5, versions, {"item": entry}, files).write(folder)
    return folder
