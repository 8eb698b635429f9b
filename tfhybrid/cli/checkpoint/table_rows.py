"""Single rows of a table in a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.cli.terminal.console import plain, show


def of_keys(
    stored: StoredCheckpoint, name: str, keys: Sequence[int], strings: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the rows of keys, and of the keys of strings, ready for JSON.

    Args:
        stored: The checkpoint.
        name: The table.
        keys: The keys to look up.
        strings: Strings whose keys are looked up too.

    Returns:
        `key`, `string`, `embedding` and `states` for each, in the given order; the last two are
        `None` if there is no row.

    Raises:
        CheckpointError: There is no such table, or its files are damaged.
    """
    wanted: list[tuple[int, str | None]] = [(key, None) for key in keys]
    wanted += zip(_keys_of(strings), strings, strict=True)
    blocks = stored.rows(name)
    rows = []
    for key, string in wanted:
        row: dict[str, Any] = {"key": key, "string": string, "embedding": None, "states": None}
        for block in blocks:
            for place in np.flatnonzero(block.keys == key):
                row["embedding"] = block.embeddings[place].tolist()
                row["states"] = block.states[place].tolist()
        rows.append(row)
    return rows


def show_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Writes the result of `of_keys`."""
    for row in rows:
        of = "" if row["string"] is None else f" of {row['string']!r}"
        show(plain(f"key {row['key']}{of}", "bold"))
        if row["embedding"] is None:
            show("  no row: it reads its initial value")
            continue
        show(f"  embedding  {_numbers(row['embedding'])}")
        for slot in row["states"]:
            show(f"  state      {_numbers(slot)}")


def _keys_of(strings: Sequence[str]) -> list[int]:
    if not strings:
        return []
    from tfhybrid.data.samples.strings import (
        string_keys,  # imports TensorFlow, which other keys do not need
    )

    return [int(key) for key in string_keys(list(strings)).numpy()]


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.6g}" for value in values)
