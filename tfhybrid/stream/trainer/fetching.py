"""Transfer of a target model's weights to a Keras model, to go back from a stream to batches."""

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
from tfhybrid.store import Table, unseen_keys
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.trainer.online import dense_variables
from tfhybrid.stream.weights import weight_base
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, ModelSpec, TableSpec

_log = logging.getLogger("tfhybrid.stream")


def fetch(model: keras.Model, config: str | os.PathLike[str], *, target: str) -> int:
    """Loads the weights of a target model into a Keras model, all at the same version.

    The sync unit writes a base, and this process reads it. The sync unit's folder must therefore be
    visible here under the same path. A checkpoint saved afterwards is one of a synchronous job.
    Optimizer states are loaded if the trainers push gradients; otherwise the optimizers start
    fresh.

    Args:
        model: Keras model, built and compiled like the trainers' models, in a job of one rank.
        config: Path of `stream.yaml`.
        target: Name of the target model.

    Returns:
        Number of updates that the weights contain.

    Raises:
        ConfigError: The model has other tables, dense weights or another seed than the target
            model, `config` is not valid, or the job has several ranks.
        StreamError: The sync unit cannot be reached, has no such target model, or no trainer has
            opened it yet.
        CorruptFileError: The base is damaged.
        OSError: This process cannot read the sync unit's folder.
        NotInitializedError: `tfhybrid.init()` was not called.

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
            "fetch needs a job of one rank: save a checkpoint there and restore it in the larger "
            "job. "
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
        unseen_keys.adopt(table, spec.tables[name].unseen, f"target model {target!r}")
        _load(table, spec.tables[name], paths, base.version, start)
    dense = {
        name: _whole(spec.all_tables[name], [path for of, path in files if of == name])
        for name in spec.keys_of_weights()
    }
    weights = spec.weights_of({name: rows for name, (rows, _) in dense.items()})
    for variable, value in zip((*trained, *others), weights, strict=True):
        variable.assign(value)
    _load_states(model.optimizer, spec, dense[DENSE_TABLE][1] if spec.dense else None)
    model.optimizer.iterations.assign(base.version)
    return base.version


def _check(spec: ModelSpec, tables: dict[str, Table], shapes: list[tuple[int, ...]]) -> None:
    target_dims = {name: table.dim for name, table in spec.tables.items()}
    dims = {name: table.dim for name, table in tables.items()}
    seeds = {table.seed for table in tables.values()} - {spec.seed}
    if target_dims != dims or spec.shapes != shapes or seeds:
        raise ConfigError(
            f"The model must be built like the target model, which has the tables {target_dims}, "
            f"dense weights {spec.shapes} and seed {spec.seed}. Received: {dims}, {shapes}, seed "
            f"{sorted(seeds) or spec.seed}"
        )


def _load(table: Table, spec: TableSpec, paths: list[Path], version: int, start: int) -> None:
    same_optimizer = not spec.adds and table.optimizer[:1] == (spec.settings["kind"],)
    same_optimizer = same_optimizer and table.state_shape == spec.state_shape
    table.writer.clear()
    for path in paths:
        history = bool(spec.policy)
        rows = table_file.read_rows(path, spec.dim, spec.state_shape, history=history)
        states = rows.states if same_optimizer else None
        table.writer.write_rows(RowBlock(rows.keys, rows.embeddings, states))
    table.set_version(version, start if same_optimizer else None)
    if not same_optimizer:
        _log.info("Table '%s': its optimizer starts fresh at update %d", table.name, version)


def _load_states(optimizer: Any, spec: ModelSpec, rows: np.ndarray | None) -> None:
    if not _same_dense_optimizer(optimizer, spec):
        _log.info("The optimizer of the dense weights starts fresh: the stream has no state for it")
    elif rows is not None:
        for slot, values in zip(dense_states(optimizer), spec.states_of(rows), strict=True):
            for variable, value in zip(slot, values, strict=True):
                variable.assign(value)


def _same_dense_optimizer(optimizer: Any, spec: ModelSpec) -> bool:
    """Returns whether the optimizer can use the sync unit's state of the dense weights."""
    try:
        mine = twin(optimizer)
    except UnsupportedError:
        return False
    settings = native.optimizer_settings(mine.native())
    theirs = spec.dense_optimizer or {}
    same = all(settings.get(name, 0) == theirs.get(name, 0) for name in ("kind", "flags"))
    return same and mine.slots == spec.dense_slots


def _whole(spec: TableSpec, paths: list[Path]) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns a table's rows sorted by key, and their optimizer states, `None` without any."""
    blocks = [
        table_file.read_rows(path, spec.dim, spec.state_shape, history=False) for path in paths
    ]
    order = np.argsort(np.concatenate([block.keys for block in blocks]))
    states = [block.states for block in blocks if block.states is not None]
    return (
        np.concatenate([block.embeddings for block in blocks])[order],
        np.concatenate(states)[order] if states else None,
    )
