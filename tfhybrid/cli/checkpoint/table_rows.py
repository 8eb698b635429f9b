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
    """Looks up rows by key or by string, ready for JSON.

    Args:
        stored: The checkpoint.
        name: Name of the table.
        keys: Keys to look up.
        strings: Strings whose keys are looked up after `keys`.

    Returns:
        A dictionary per key, in the given order, with `key`, `string`, `embedding` and `states`.
        The last two are `None` if the key has no row.

    Raises:
        CheckpointError: The checkpoint has no such table, or its files are damaged.
    """
    requested: list[tuple[int, str | None]] = [(key, None) for key in keys]
    requested += zip(_keys_of(strings), strings, strict=True)
    blocks = stored.rows(name)
    rows = []
    for key, string in requested:
        row: dict[str, Any] = {"key": key, "string": string, "embedding": None, "states": None}
        for block in blocks:
            for number in np.flatnonzero(block.keys == key):
                row["embedding"] = block.embeddings[number].tolist()
                row["states"] = block.states[number].tolist()
        rows.append(row)
    return rows


def show_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Writes rows of a table to standard output, as text.

    Args:
        rows: Result of `of_keys`.
    """
    for row in rows:
        of = "" if row["string"] is None else f" of {row['string']!r}"
        show(plain(f"key {row['key']}{of}", "bold"))
        if row["embedding"] is None:
            show("  no row: training reads its initial value")
            continue
        show(f"  embedding  {_numbers(row['embedding'])}")
        for slot in row["states"]:
            show(f"  state      {_numbers(slot)}")


def _keys_of(strings: Sequence[str]) -> list[int]:
    if not strings:
        return []
    # Imported here: only strings need TensorFlow.
    from tfhybrid.data.samples.strings import string_keys

    return [int(key) for key in string_keys(list(strings)).numpy()]


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.6g}" for value in values)
