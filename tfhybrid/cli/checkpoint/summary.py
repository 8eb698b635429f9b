"""Contents of a checkpoint, and statistics of a table's embeddings."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.filesize import decimal
from rich.text import Text

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.manifest import DENSE, MANIFEST, Manifest
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.checkpoint.table_file import StoredRows, parts, read_arrays
from tfhybrid.cli.terminal import console
from tfhybrid.cli.terminal.console import plain, show
from tfhybrid.core.native import (
    OPTIMIZER_NUMBERS,
    OptimizerFlag,
    OptimizerKind,
    optimizer_settings,
)
from tfhybrid.data.position import told

# Kind -> name of the optimizer and names of its settings. The classes in tfhybrid.optimizers cannot
# be used here, because they need Keras.
OPTIMIZERS: dict[int, tuple[str, tuple[str, ...]]] = {
    OptimizerKind.SGD: ("SGD", ("momentum", "nesterov")),
    OptimizerKind.ADAGRAD: ("Adagrad", ("initial_accumulator_value", "epsilon")),
    OptimizerKind.ADAM: ("Adam", ("beta_1", "beta_2", "epsilon", "amsgrad")),
    OptimizerKind.RMSPROP: ("RMSprop", ("rho", "momentum", "epsilon", "centered")),
    OptimizerKind.FTRL: (
        "Ftrl",
        (
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "l2_shrinkage_regularization_strength",
            "beta",
        ),
    ),
    OptimizerKind.ROW_ADAGRAD: ("RowAdagrad", ("initial_accumulator_value", "epsilon")),
}
# Settings of every optimizer; shown if they are not 0.
EXTRAS = ("weight_decay", "penalty_l1", "penalty_l2", "every_row")
_FLAGS = {
    "nesterov": OptimizerFlag.NESTEROV,
    "amsgrad": OptimizerFlag.AMSGRAD,
    "centered": OptimizerFlag.CENTERED,
    "every_row": OptimizerFlag.EVERY_ROW,
}
_SHORTER = "_regularization_strength"  # a suffix of Keras's names that the store's names lack
_FIRST_ROWS = 5
_SHOWN_COLUMNS = 6
_PART_ROWS = 16384


def of_checkpoint(stored: StoredCheckpoint) -> dict[str, Any]:
    """Returns a checkpoint's contents, ready for JSON.

    Args:
        stored: The checkpoint, of which no rows are read.

    Raises:
        CheckpointError: The file of the dense arrays is missing or damaged.
        OSError: The time of the manifest cannot be read.
    """
    folder, manifest = stored.folder, stored.manifest
    dense = read_arrays(folder / DENSE)
    modified = storage.modified(folder / MANIFEST)
    saved = datetime.datetime.fromtimestamp(modified, datetime.UTC)
    return {
        "folder": str(folder),
        "step": manifest.step,
        "position": manifest.position,
        "saved": saved.isoformat(timespec="seconds"),
        "versions": manifest.versions,
        "ranks": manifest.ranks,
        "seed": manifest.seed,
        "base": None if manifest.base is None else manifest.base.step,
        "sequence": manifest.sequence,
        "bytes": sum(entry.size for entry in manifest.files.values()),
        "dense": {"arrays": len(dense), "bytes": sum(array.nbytes for array in dense.values())},
        "tables": {name: _table(manifest, name) for name in manifest.tables},
    }


def of_table(stored: StoredCheckpoint, name: str) -> dict[str, Any]:
    """Returns a table's contents and statistics, ready for JSON. Reads all rows of the table.

    Args:
        stored: The checkpoint.
        name: Name of the table.

    Raises:
        CheckpointError: The checkpoint has no such table, or its files are damaged.
    """
    blocks = stored.rows(name)
    return {
        "folder": str(stored.folder),
        "step": stored.manifest.step,
        "table": name,
        **_table(stored.manifest, name),
        **_rows(blocks),
        "first_rows": _first_rows(blocks),
    }


def show_checkpoint(contents: dict[str, Any]) -> None:
    """Writes the contents of a checkpoint to standard output, as text.

    Args:
        contents: Result of `of_checkpoint`.
    """
    position, dense = contents["position"], contents["dense"]
    versions = ", ".join(f"{name} {version}" for name, version in contents["versions"].items())
    show(plain(contents["folder"], "bold"))
    show(f"step      {contents['step']}, resumes at {told(position)}")
    show(plain(f"saved     {contents['saved']} with {versions}"))
    show(f"ranks     {contents['ranks']}, seed {contents['seed']}")
    if contents["base"] is not None:
        show(
            f"delta     no. {contents['sequence']}: rows that changed since step {contents['base']}"
        )
    show(f"dense     {dense['arrays']} arrays, {decimal(dense['bytes'])}")
    show(f"in all    {decimal(contents['bytes'])}")
    tables = contents["tables"].values()
    cells = {
        "table": [*contents["tables"]],
        "rows": [f"{table['rows']:,}" for table in tables],
        "expected": [_count_text(table["expected_rows"]) for table in tables],
        "dim": [f"{table['dim']}" for table in tables],
        "optimizer": [(table["optimizer"] or {}).get("name", "none") for table in tables],
        "version": [f"{table['version']:,}" for table in tables],
        "size": [decimal(table["bytes"]) for table in tables],
        "files": [f"{table['files']}" for table in tables],
    }
    columns = [column for column, texts in cells.items() if column != "expected" or any(texts)]
    rows = [list(row) for row in zip(*(cells[column] for column in columns), strict=True)]
    console.show_table(columns, rows, text=["table", "optimizer"])
    settings: dict[str, list[str]] = {}
    for name, table in contents["tables"].items():
        settings.setdefault(_optimizer_text(table["optimizer"]), []).append(name)
    for text, names in settings.items():
        console.show_beside(Text("optimizer "), plain(f"{text} of {', '.join(names)}"))


def _count_text(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def show_table(contents: dict[str, Any]) -> None:
    """Writes the contents and statistics of a table to standard output, as text.

    Args:
        contents: Result of `of_table`.
    """
    norms = contents["norms"]
    show(plain(f"{contents['table']} of {contents['folder']}", "bold"))
    show(
        f"rows      {contents['rows']:,} of dim {contents['dim']}, version {contents['version']:,}"
    )
    show(f"optimizer {_optimizer_text(contents['optimizer'])}")
    show(f"files     {contents['files']}, {decimal(contents['bytes'])}")
    if contents["rows"]:
        show(f"keys      {contents['keys']['min']} to {contents['keys']['max']}")
        show(f"NaN       in {contents['nan_rows']:,} rows")
    if norms is not None:
        show(f"norms     {norms['min']:.4g} to {norms['max']:.4g}, mean {norms['mean']:.4g}")
    rows = []
    for row in contents["first_rows"]:
        values = ["NaN or inf" if v is None else f"{v:.5g}" for v in row["embedding"]]
        more = ", ..." if len(values) > _SHOWN_COLUMNS else ""
        rows.append([str(row["key"]), ", ".join(values[:_SHOWN_COLUMNS]) + more])
    console.show_table(["key", "embedding"], rows, text=["embedding"])


def _table(manifest: Manifest, name: str) -> dict[str, Any]:
    entry = manifest.tables[name]
    return {
        "rows": entry.rows,
        "expected_rows": entry.expected_rows,
        "whole": entry.whole,
        "dim": entry.dim,
        "optimizer": _optimizer(entry.optimizer),
        "state_slots": entry.state_slots,
        "version": entry.version,
        "digest": f"{entry.digest:016x}",
        "bytes": sum(manifest.files[file].size for file in entry.all_files),
        "files": len(entry.all_files),
    }


def _optimizer(native: Sequence[float]) -> dict[str, Any] | None:
    """Returns name and settings of a table's optimizer, or `None` if it never had one."""
    if not native:
        return None
    values = optimizer_settings(native)
    name, settings = OPTIMIZERS.get(int(native[0]), (f"kind {native[0]}", OPTIMIZER_NUMBERS))
    extras = tuple(extra for extra in EXTRAS if _setting(values, extra))
    return {"name": name, **{setting: _setting(values, setting) for setting in settings + extras}}


def _setting(values: dict[str, float], name: str) -> float | bool | None:
    if name in _FLAGS:
        return bool(int(values.get("flags", 0)) & _FLAGS[name])
    return values.get(name.removesuffix(_SHORTER))


def _optimizer_text(optimizer: dict[str, Any] | None) -> str:
    if optimizer is None:
        return "none"
    settings = ", ".join(f"{name}={value}" for name, value in [*optimizer.items()][1:])
    return f"{optimizer['name']}({settings})"


def _rows(blocks: Sequence[StoredRows]) -> dict[str, Any]:
    keys = [edge for block in blocks if len(block.keys) for edge in _edges(block.keys)]
    norms: list[np.ndarray] = []
    nan_rows = infinite_rows = 0
    for block in blocks:
        for part in parts(block, _PART_ROWS):
            has_nan = np.isnan(part.embeddings).any(axis=1)
            finite = np.isfinite(part.embeddings).all(axis=1)
            nan_rows += int(has_nan.sum())
            infinite_rows += int((~finite & ~has_nan).sum())
            values = part.embeddings[finite].astype(np.float64)
            norms.append(np.sqrt((values * values).sum(axis=1)))
    lengths = np.concatenate([np.empty(0), *norms])
    return {
        "keys": {"min": min(keys), "max": max(keys)} if keys else None,
        "norms": {
            "min": float(lengths.min()),
            "mean": float(lengths.mean()),
            "max": float(lengths.max()),
        }
        if len(lengths)
        else None,
        "nan_rows": nan_rows,
        "infinite_rows": infinite_rows,
    }


def _edges(keys: np.ndarray) -> tuple[int, int]:
    return int(keys.min()), int(keys.max())


def _first_rows(blocks: Sequence[StoredRows]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for block in blocks:
        for key, embedding in zip(block.keys, block.embeddings, strict=True):
            if len(rows) == _FIRST_ROWS:
                return rows
            values = [value if math.isfinite(value) else None for value in embedding.tolist()]
            rows.append({"key": int(key), "embedding": values})
    return rows
