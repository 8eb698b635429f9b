"""Initial weights of a target model, read from a checkpoint of a synchronous job."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import numpy as np

from tfhybrid.checkpoint.manifest import Manifest, TableEntry
from tfhybrid.checkpoint.stored import StoredCheckpoint, locate
from tfhybrid.core import native
from tfhybrid.core.row_block import RowBlock
from tfhybrid.errors import CheckpointError
from tfhybrid.stream.weights.finite_rows import first_not_finite
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

_log = logging.getLogger("tfhybrid.stream")


@dataclasses.dataclass(frozen=True)
class FirstRows:
    """Initial rows of a table.

    Args:
        blocks: All rows. They have optimizer states if the sync unit continues with the
            checkpoint's optimizer.
        optimizer_start: Version at which the table's optimizer started.
    """

    blocks: Sequence[RowBlock]
    optimizer_start: int


@dataclasses.dataclass(frozen=True)
class FirstWeights:
    """Weights that the sync unit takes from a checkpoint.

    Args:
        version: Step of the checkpoint. The model's versions count up from it.
        tables: Rows of each table, by table name.
        dense_states: Optimizer states of the rows that hold the dense weights; their optimizer has
            made all steps up to `version`. Default: none, and the optimizer starts at `version`.
    """

    version: int
    tables: Mapping[str, FirstRows]
    dense_states: np.ndarray | None = None


def read_checkpoint(directory: str, step: int, spec: ModelSpec) -> FirstWeights:
    """Reads the rows of a checkpoint's tables. Needs neither TensorFlow nor Horovod.

    Args:
        directory: Directory of the checkpoints.
        step: Step of the checkpoint to read.
        spec: Specification of the target model, which must have the checkpoint's tables.

    Returns:
        The rows, without `dense_states`: the first trainer sends the dense weights and their
        states. A table's states are dropped, with a warning, if its optimizer is another one than
        in the checkpoint.

    Raises:
        CheckpointError: The checkpoint is missing or damaged, does not fit the model, or has a
            value that is not finite.
        OSError: The directory cannot be read.
    """
    stored = StoredCheckpoint.open(locate(directory, step))
    manifest = stored.manifest
    stored.check()
    _check(manifest, spec, directory)
    tables = {}
    for name, table in spec.tables.items():
        entry = manifest.tables[name]
        same_optimizer = _same_optimizer(entry, table)
        if not same_optimizer and not table.adds:
            _log.warning(
                "Table '%s' of %s was saved with another optimizer: its state is dropped",
                name,
                directory,
            )
        blocks = [
            RowBlock(rows.keys, rows.embeddings, rows.states if same_optimizer else None)
            for rows in stored.rows(name)
        ]
        for block in blocks:
            _check_finite(name, block, directory)
        updates = entry.version - entry.optimizer_start if same_optimizer else 0
        tables[name] = FirstRows(blocks, max(manifest.step - updates, 0))
    return FirstWeights(manifest.step, tables)


def _check(manifest: Manifest, spec: ModelSpec, directory: str) -> None:
    if manifest.seed != spec.seed or set(manifest.tables) != set(spec.tables):
        raise CheckpointError(
            "The target model must have the checkpoint's tables and seed: "
            f"{directory} has the tables {sorted(manifest.tables)} and seed {manifest.seed}. "
            f"Received: a model with {sorted(spec.tables)} and seed {spec.seed}"
        )
    for name, table in spec.tables.items():
        entry = manifest.tables[name]
        saved = (entry.dim, tuple(entry.initializer), entry.history, entry.decay)
        expected = (table.dim, tuple(table.initializer), False, 1.0)
        if saved != expected:
            raise CheckpointError(
                "The sync unit reads only tables without history and decay. Table '"
                f"{name}' must have the dim, initializer, history and decay {expected}. "
                f"Received: {saved} in {directory}"
            )


def _check_finite(table: str, block: RowBlock, directory: str) -> None:
    for array in (block.embeddings, block.states):
        if array is None or not array.size:
            continue
        if bad := first_not_finite(block.keys, array):
            key, values = bad
            raise CheckpointError(
                "Rows and optimizer states must be finite, so that a stream can go on from them. "
                f"Received: key {key} of table '{table}' in {directory} has {values}"
            )


def _same_optimizer(entry: TableEntry, table: TableSpec) -> bool:
    """Returns whether the table's optimizer can use the checkpoint's optimizer states."""
    settings = native.optimizer_settings(entry.optimizer)
    same_kind = settings.get("kind") == table.settings["kind"]
    same_flags = settings.get("flags", 0) == table.settings.get("flags", 0)
    return not table.adds and same_kind and same_flags and entry.state_shape == table.state_shape
