"""Differences between two checkpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.checkpoint.table_file import StoredRows, sorted_keys
from tfhybrid.cli.checkpoint.variables import Variables, matched
from tfhybrid.cli.terminal.console import plain, show, show_table

_PART_ROWS = 16384
_GENERATOR = re.compile(r"(^|/)random/(python|numpy|tensorflow)$|(^|/)seed_generator_state$")
# The columns for a dense array and for a table's rows.
_ARRAY = ("largest_difference", "shape_changed")
_TABLE = ("added", "removed", "changed", "largest_difference", "changed_states", "shape_changed")


def between(a: StoredCheckpoint, b: StoredCheckpoint) -> dict[str, Any]:
    """Compares two checkpoints.

    One table at a time is read into memory.

    Args:
        a: The older checkpoint; rows that only `b` has count as added.
        b: The newer checkpoint.

    Returns:
        `a`, `b`, `dense` and `tables`, ready for JSON.

    Raises:
        CheckpointError: A checkpoint is damaged.
    """
    first, second = a.manifest.tables, b.manifest.tables
    return {
        "a": {"folder": str(a.folder), "step": a.manifest.step},
        "b": {"folder": str(b.folder), "step": b.manifest.step},
        "dense": _dense(Variables.of(a), Variables.of(b)),
        "tables": {
            "added": [name for name in second if name not in first],
            "removed": [name for name in first if name not in second],
            "compared": {name: _table(a, b, name) for name in first if name in second},
        },
    }


def show_difference(changes: dict[str, Any]) -> None:
    """Writes the differences of two checkpoints to standard output, as text.

    Args:
        changes: Result of `between`.
    """
    for side in ("a", "b"):
        show(plain(f"{side.upper()}: step {changes[side]['step']}, {changes[side]['folder']}"))
    dense, tables = changes["dense"], changes["tables"]
    changed = {name: each for name, each in dense["changed"].items() if not is_generator(name)}
    show(
        f"dense arrays: {dense['equal']} equal, {len(changed)} changed, "
        f"{len(dense['added'])} added, {len(dense['removed'])} removed"
    )
    _show("dense array", _ARRAY, changed)
    if states := len(dense["changed"]) - len(changed):
        show(
            f"random generators: {states} states changed, as always unless both runs have set the "
            "same seed and drawn as often"
        )
    for change in ("added", "removed"):
        for name in dense[change]:
            show(plain(f"dense array {name}: {change}"))
    for change in ("added", "removed"):
        for name in tables[change]:
            show(plain(f"table {name}: {change}"))
    _show("table", _TABLE, tables["compared"])


def is_generator(name: str) -> bool:
    """Returns whether a dense array is the state of a random generator, of a process or of Keras.

    Args:
        name: Display name of the array.

    Example:

    >>> is_generator("rank/0/random/numpy"), is_generator("weights/random/kernel")
    (True, False)
    >>> is_generator("rank/0/own/dropout/seed_generator_state")
    True
    """
    return _GENERATOR.search(name) is not None


def _show(what: str, columns: Sequence[str], changes: dict[str, dict[str, Any]]) -> None:
    """Writes one table row per changed item, without columns that are empty in all rows."""
    filled = [name for name in columns if any(each[name] is not None for each in changes.values())]
    rows = [[name, *(_cell(each[column]) for column in filled)] for name, each in changes.items()]
    if rows:
        show_table([what, *(column.replace("_", " ") for column in filled)], rows, text=[what])


def _cell(value: float | str | None) -> str:
    form = ",d" if isinstance(value, int) else ".4g" if isinstance(value, float) else ""
    return "" if value is None else format(value, form)


def _dense(a: Variables, b: Variables) -> dict[str, Any]:
    changed: dict[str, dict[str, Any]] = {}
    pairs = matched(a, b)
    for first, second in pairs.items():
        x, y = a.arrays[first], b.arrays[second]
        name = b.called(second)
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            shapes = f"{x.dtype}{list(x.shape)} -> {y.dtype}{list(y.shape)}"
            changed[name] = {"shape_changed": shapes, "largest_difference": None}
        elif x.tobytes() != y.tobytes():
            changed[name] = {"shape_changed": None, "largest_difference": _largest(x, y)}
    return {
        "equal": len(pairs) - len(changed),
        "changed": changed,
        "added": sorted(map(b.called, b.arrays.keys() - pairs.values())),
        "removed": sorted(map(a.called, a.arrays.keys() - pairs.keys())),
    }


def _table(a: StoredCheckpoint, b: StoredCheckpoint, name: str) -> dict[str, Any]:
    blocks_a, blocks_b = a.rows(name), b.rows(name)
    keys_a, rows_a = sorted_keys(blocks_a, f"Table '{name}' in {a.folder}")
    keys_b, rows_b = sorted_keys(blocks_b, f"Table '{name}' in {b.folder}")
    at = np.searchsorted(keys_b, keys_a)
    common = at < len(keys_b)
    common[common] = keys_b[at[common]] == keys_a[common]
    changes = dict.fromkeys(_TABLE) | {
        "added": len(keys_b) - int(common.sum()),
        "removed": len(keys_a) - int(common.sum()),
    }
    x, y = a.manifest.tables[name], b.manifest.tables[name]
    pairs = rows_a[common], rows_b[at[common]]
    if x.dim != y.dim:
        changes["shape_changed"] = f"dim {x.dim} -> {y.dim}"
        return changes
    embeddings = _joined(blocks_a, 1), _joined(blocks_b, 1)
    changes["changed"], changes["largest_difference"] = _values(*embeddings, pairs)
    if x.state_shape != y.state_shape:
        changes["shape_changed"] = f"states {list(x.state_shape)} -> {list(y.state_shape)}"
    else:
        changes["changed_states"], _ = _values(_joined(blocks_a, 2), _joined(blocks_b, 2), pairs)
    return changes


def _joined(blocks: Sequence[StoredRows], field: int) -> np.ndarray:
    """Concatenates the embeddings (field 1) or states (field 2) of all blocks: `[n, ...]`."""
    if len(blocks) == 1:  # stays a view of the file
        return blocks[0][field]
    return np.concatenate([block[field] for block in blocks]) if blocks else np.empty((0, 1), "f4")


def _values(
    a: np.ndarray, b: np.ndarray, pairs: tuple[np.ndarray, np.ndarray]
) -> tuple[int, float]:
    """Counts the rows that differ in any bit, and finds the largest difference of a value.

    Args:
        a: float32 `[n, ...]`.
        b: float32 `[m, ...]`.
        pairs: Row numbers in `a` and in `b` with the same key, int64 `[k]` each.
    """
    changed, largest = 0, 0.0
    for first in range(0, len(pairs[0]), _PART_ROWS):
        x, y = (
            array[rows[first : first + _PART_ROWS]]
            for array, rows in zip((a, b), pairs, strict=True)
        )
        axes = tuple(range(1, x.ndim))
        changed += int((x.view(np.uint32) != y.view(np.uint32)).any(axis=axes).sum())
        largest = max(largest, _largest(x, y))
    return changed, largest


def _largest(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the largest absolute difference, ignoring NaN and infinities; 0 without any."""
    wide = np.complex128 if np.iscomplexobj(x) else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(x.astype(wide) - y.astype(wide))
    return float(difference[np.isfinite(difference)].max(initial=0.0))
