"""The weights of a target model, given to a Keras model: from the stream back to batches."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.checkpoint import table_file
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.core import native
from tfhybrid.core.row_block import RowBlock
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.optimizers.dense_states import dense_states
from tfhybrid.optimizers.twin import twin
from tfhybrid.store import Table
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.trainer.online import dense_variables
from tfhybrid.stream.weights import weight_base
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, ModelSpec, TableSpec

_log = logging.getLogger("tfhybrid.stream")


def fetch(model: keras.Model, config: str | os.PathLike[str], *, target: str) -> int:
    """Gives a model the weights of a target model, as they all are after one update.

    Has the sync unit write a base, and reads it: its folder must be visible here under the same
    path. A checkpoint of the model is then one of a synchronous job. Optimizer states
    come along if trainers push gradients, and begin afresh otherwise.

    Args:
        model: Built and compiled as the trainers', in a job of one rank.
        config: `stream.yaml`.
        target: The target model.

    Returns:
        How many updates are in the weights.

    Raises:
        ConfigError: The model is another one, or this is one of several ranks.
        StreamError: The sync unit cannot be reached, or the target model has not begun.
        CorruptFileError: The base is damaged.

    Example:

    ```python
    tfhybrid.init()
    model = build()
    updates = tfhybrid.stream.fetch(model, "stream.yaml", target="ads")
    tfhybrid.checkpoint.save(model, "checkpoints/", tfhybrid.data.Position(0, updates))
    ```
    """
    if distributed.size() > 1:
        raise ConfigError(
            "fetch is for a job of one rank; restore its checkpoint in a larger one. "
            f"Received: {distributed.size()} ranks"
        )
    unit = StreamSettings.read(config).remote_model(target, "fetch")
    base, files = weight_base.read(Path(unit.save()))
    spec = ModelSpec.from_json(base.spec)
    model.optimizer.build(model.trainable_variables)
    tables = tables_of(model)
    trained, others = dense_variables(model)
    _check(spec, tables, [tuple(each.shape) for each in (*trained, *others)])
    for name, table in tables.items():
        paths = [path for of, path in files if of == name]
        start = base.optimizer_starts.get(name, 0)
        _load(table, spec.tables[name], paths, base.version, start)
    found = {
        name: _whole(spec.all_tables[name], [path for of, path in files if of == name])
        for name in spec.keys_of_weights()
    }
    weights = spec.weights_of({name: rows for name, (rows, _) in found.items()})
    for variable, value in zip((*trained, *others), weights, strict=True):
        variable.assign(value)
    _load_states(model.optimizer, spec, found[DENSE_TABLE][1] if spec.dense else None)
    model.optimizer.iterations.assign(base.version)
    return base.version


def _check(spec: ModelSpec, tables: dict[str, Table], shapes: list[tuple[int, ...]]) -> None:
    wanted = {name: table.dim for name, table in spec.tables.items()}
    found = {name: table.dim for name, table in tables.items()}
    seeds = {table.seed for table in tables.values()} - {spec.seed}
    if wanted != found or spec.shapes != shapes or seeds:
        raise ConfigError(
            f"The target model has tables {wanted}, dense weights {spec.shapes} and seed "
            f"{spec.seed}. Received: {found}, {shapes}, seed {sorted(seeds) or spec.seed}"
        )


def _load(table: Table, spec: TableSpec, paths: list[Path], version: int, start: int) -> None:
    goes_on = not spec.adds and table.optimizer[:1] == (spec.settings["kind"],)
    goes_on = goes_on and table.state_shape == spec.state_shape
    table.writer.clear()
    for path in paths:
        keeps = bool(spec.policy)
        rows = table_file.read_rows(path, spec.dim, spec.state_shape, history=keeps)
        states = rows.states if goes_on else None
        table.writer.write_rows(RowBlock(rows.keys, rows.embeddings, states))
    table.set_version(version, start if goes_on else None)
    if not goes_on:
        _log.info("Table '%s': its optimizer begins afresh at update %d", table.name, version)


def _load_states(optimizer: Any, spec: ModelSpec, rows: np.ndarray | None) -> None:
    if not _is_of(optimizer, spec):
        _log.info("The optimizer of the dense weights begins afresh: the stream has no state of it")
    elif rows is not None:
        for slot, values in zip(dense_states(optimizer), spec.states_of(rows), strict=True):
            for variable, value in zip(slot, values, strict=True):
                variable.assign(value)


def _is_of(optimizer: Any, spec: ModelSpec) -> bool:
    """Returns whether the sync unit's optimizer of dense weights has the same state as this one."""
    try:
        mine = twin(optimizer)
    except UnsupportedError:
        return False
    settings = native.optimizer_settings(mine.native())
    theirs = spec.dense_optimizer or {}
    same = all(settings.get(name, 0) == theirs.get(name, 0) for name in ("kind", "flags"))
    return same and mine.slots == spec.dense_slots


def _whole(spec: TableSpec, paths: list[Path]) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the rows of a table in the order of their keys, and their optimizer states."""
    blocks = [
        table_file.read_rows(path, spec.dim, spec.state_shape, history=False) for path in paths
    ]
    order = np.argsort(np.concatenate([block.keys for block in blocks]))
    states = [block.states for block in blocks if block.states is not None]
    return (
        np.concatenate([block.embeddings for block in blocks])[order],
        np.concatenate(states)[order] if states else None,
    )
