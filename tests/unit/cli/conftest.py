"""A checkpoint as `tfhybrid.checkpoint.save` writes it, and the command line."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tensorflow import keras
from typer.testing import CliRunner, Result

import tfhybrid
from tfhybrid import checkpoint
from tfhybrid.checkpoint.manifest import FileEntry, Manifest
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.checkpoint.table_file import StoredRows, arrays_of, digest
from tfhybrid.cli import app
from tfhybrid.data import Position

DIM = 5
SEED = 3


def new_model() -> keras.Model:
    """Two tables: `user` with Adam, as the dense weights have; `item` with Adagrad."""
    keras.utils.set_random_seed(1)
    configs = {
        "user": tfhybrid.TableConfig(DIM),
        "item": tfhybrid.TableConfig(DIM, optimizer=tfhybrid.optimizers.Adagrad(0.05)),
    }
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in configs}
    embedded = tfhybrid.layers.EmbeddingCollection(configs)(inputs)
    flat = [keras.layers.Flatten()(each) for each in embedded.values()]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(flat)))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    return model


def rewrite(folder: Path, table: str, rows: StoredRows, *, keep_digest: bool = False) -> None:
    """Replaces the rows of a table, with checksums that fit, as a program other than ours could."""
    manifest = Manifest.read(folder)
    (file,) = manifest.tables[table].files
    save_file(arrays_of(rows), folder / file)
    entry = manifest.tables[table]
    sums = {"rows": len(rows.keys)} | ({} if keep_digest else {"digest": digest(rows)})
    dataclasses.replace(
        manifest,
        files={**manifest.files, file: FileEntry.of(folder / file)},
        tables={**manifest.tables, table: dataclasses.replace(entry, **sums)},
    ).write(folder)


def rows_of(folder: Path, table: str) -> StoredRows:
    """Returns a table's only block, in memory."""
    (block,) = StoredCheckpoint.open(folder).rows(table)
    return StoredRows(*(np.array(array) for array in block))


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of the steps 1 and 3; the second has keys that the first has not."""
    directory = tmp_path_factory.mktemp("saved")
    tfhybrid.init(seed=SEED)
    model = new_model()
    rng = np.random.default_rng(0)
    for epochs, most in [(1, 20), (2, 40)]:
        keys = {name: rng.integers(-most, most, (64, 1)) for name in ("user", "item")}
        labels = rng.random((64, 1)).astype(np.float32)
        model.fit(keys, labels, batch_size=64, epochs=epochs, verbose=0)
        checkpoint.save(model, directory, Position(epochs, 0))
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return directory


@pytest.fixture
def directory(saved: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoints, to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "checkpoints"))


@pytest.fixture
def newest(directory: Path) -> Path:
    return directory / "step-0000000003"


@pytest.fixture
def run() -> Callable[..., Result]:
    """Runs `tfhybrid checkpoint ...`."""

    def run(*arguments: str | Path, status: int = 0) -> Result:
        result = CliRunner().invoke(app, ["checkpoint", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    return run


@pytest.fixture
def run_json(run: Callable[..., Result]) -> Callable[..., Any]:
    """Runs it with --json, and parses all of standard output."""

    def run_json(*arguments: str | Path, status: int = 0) -> Any:
        return json.loads(run(*arguments, "--json", status=status).stdout)

    return run_json
