"""The weights with which a target model begins that a synchronous job has trained."""

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
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

_log = logging.getLogger("tfhybrid.stream")


@dataclasses.dataclass(frozen=True)
class FirstRows:
    """The rows of a table.

    Args:
        blocks: All of them; with optimizer states, if the sync unit goes on with the optimizer.
        optimizer_start: The version at which that began.
    """

    blocks: Sequence[RowBlock]
    optimizer_start: int


@dataclasses.dataclass(frozen=True)
class FirstWeights:
    """What the sync unit takes from a checkpoint.

    Args:
        version: The checkpoint's step, from which versions are counted on.
        tables: Rows of each table.
        dense_states: Of the rows of dense weights, whose optimizer has made all steps up to that
            version. By default it begins then.
    """

    version: int
    tables: Mapping[str, FirstRows]
    dense_states: np.ndarray | None = None


def read_checkpoint(directory: str, step: int, spec: ModelSpec) -> FirstWeights:
    """Reads the rows of a checkpoint. Needs neither TensorFlow nor Horovod.

    Args:
        directory: Where checkpoints are kept.
        step: Which one.
        spec: The target model, which has the checkpoint's tables.

    Raises:
        CheckpointError: It is missing or damaged, or does not fit the model.
    """
    stored = StoredCheckpoint.open(locate(directory, step))
    manifest = stored.manifest
    stored.check()
    _check(manifest, spec, directory)
    tables = {}
    for name, table in spec.tables.items():
        entry = manifest.tables[name]
        goes_on = _same_optimizer(entry, table)
        if not goes_on and not table.adds:
            _log.warning(
                "Table '%s' of %s was saved with another optimizer: its state is dropped",
                name,
                directory,
            )
        blocks = [
            RowBlock(rows.keys, rows.embeddings, rows.states if goes_on else None)
            for rows in stored.rows(name)
        ]
        updates = entry.version - entry.optimizer_start if goes_on else 0
        tables[name] = FirstRows(blocks, max(manifest.step - updates, 0))
    return FirstWeights(manifest.step, tables)


def _check(manifest: Manifest, spec: ModelSpec, directory: str) -> None:
    if manifest.seed != spec.seed or set(manifest.tables) != set(spec.tables):
        raise CheckpointError(
            f"{directory} has the tables {sorted(manifest.tables)} and seed {manifest.seed}. "
            f"Received: a model with {sorted(spec.tables)} and seed {spec.seed}"
        )
    for name, table in spec.tables.items():
        entry = manifest.tables[name]
        saved = (entry.dim, tuple(entry.initializer), entry.history, entry.decay)
        wanted = (table.dim, tuple(table.initializer), False, 1.0)
        if saved != wanted:
            raise CheckpointError(
                f"The sync unit begins with tables without history and decay. Table '{name}' has "
                f"dim, initializer, history and decay {wanted}. Received: {saved} in {directory}"
            )


def _same_optimizer(entry: TableEntry, table: TableSpec) -> bool:
    """Returns whether a row's state means the same to both optimizers."""
    settings = native.optimizer_settings(entry.optimizer)
    same_kind = settings.get("kind") == table.settings["kind"]
    same_flags = settings.get("flags", 0) == table.settings.get("flags", 0)
    return not table.adds and same_kind and same_flags and entry.state_shape == table.state_shape
