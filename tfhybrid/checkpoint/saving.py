"""Saving: what is saved is of one step, and written while training goes on."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file

from tfhybrid import distributed, initializers
from tfhybrid._version import __version__
from tfhybrid.checkpoint import dense
from tfhybrid.checkpoint.manifest import (
    DENSE,
    FORMAT,
    FileEntry,
    Manifest,
    Position,
    TableEntry,
    folder_of,
    steps,
    sync,
)
from tfhybrid.checkpoint.table_file import file_name
from tfhybrid.errors import CheckpointError, StoreError, TfhybridError
from tfhybrid.store import FrozenTable, Table, TableFile, current_job

_log = logging.getLogger("tfhybrid.checkpoint")

_WRITERS = 4  # threads; each holds a file in memory, 64 MB of embeddings at most and their state


def save(
    model: keras.Model,
    directory: str | os.PathLike[str],
    position: Position,
    *,
    max_to_keep: int | None = None,
) -> Path:
    """Saves a model between two steps, and returns when it is on disk; every rank must call it.

    Args:
        model: Compiled with `tfhybrid.DistributedOptimizer`, and built.
        directory: Where checkpoints are kept; made if it does not exist.
        position: Where training will go on.
        max_to_keep: Number of newest checkpoints that stay. `None` keeps all.

    Returns:
        The checkpoint's folder. A checkpoint of the same step is replaced.

    Raises:
        CheckpointError: On all ranks, if it could not be written; what was there stays.

    Example:

    ```python
    tfhybrid.checkpoint.save(model, "checkpoints/", tfhybrid.checkpoint.Position(epoch=1, step=0))
    ```
    """
    snapshot = Snapshot(model, directory, position)
    try:
        distributed.together(lambda: snapshot.write(max_to_keep))
    except StoreError as error:  # of another rank
        raise CheckpointError(str(error)) from error
    return snapshot.folder


class Snapshot:
    """A model at one step, taken without copying its tables; rank 0 writes it.

    Every rank makes one between two steps; `write` may run on a thread of its own while training
    goes on. Until it has, the model can be neither saved again nor restored.

    Args:
        model: Compiled with `tfhybrid.DistributedOptimizer`, and built.
        directory: Where checkpoints are kept.
        position: Where training will go on.

    Raises:
        CheckpointError: On all ranks: the replicas of a table differ, or one is being saved.
    """

    def __init__(
        self, model: keras.Model, directory: str | os.PathLike[str], position: Position
    ) -> None:
        self.step = int(model.optimizer.iterations)
        self.folder = folder_of(Path(directory), self.step)
        self._position = position
        self._optimizer = type(model.optimizer).__name__
        self._arrays = dense.gather(model)
        self._tables = dense.tables_of(model)
        self._frozen: dict[str, FrozenTable] = {}
        _compare_replicas(self._tables)
        try:
            distributed.together(self._freeze)
        except TfhybridError as error:
            raise CheckpointError(f"{self.folder} cannot be saved. {error}") from error

    def write(self, max_to_keep: int | None = None) -> None:
        """Writes the checkpoint, complete or not at all; on rank 0, elsewhere there is nothing.

        Args:
            max_to_keep: Number of newest checkpoints that stay. `None` keeps all.

        Raises:
            CheckpointError: It could not be written; what was there stays.
        """
        if distributed.rank() > 0:
            return
        started = time.monotonic()
        try:
            size = self._write()
            _prune(self.folder.parent, max_to_keep)
        except Exception as error:  # whatever it is, the thread that asks later must learn of it
            raise CheckpointError(
                f"The checkpoint {self.folder} could not be written. {error}"
            ) from error
        finally:
            self._thaw()
        seconds = time.monotonic() - started
        _log.info("Saved %s: %.1f MB in %.1f s", self.folder, size / 1e6, seconds)

    def _freeze(self) -> None:
        if distributed.rank() > 0:
            return
        try:
            for name, table in self._tables.items():
                self._frozen[name] = table.freeze()
        except BaseException:
            self._thaw()
            raise

    def _thaw(self) -> None:
        for name in self._frozen:
            with contextlib.suppress(StoreError):  # the job has ended: there is nothing to thaw
                self._tables[name].thaw()
        self._frozen = {}

    def _write(self) -> int:
        """Writes all files under a temporary name, then renames; returns the bytes written."""
        unfinished = self.folder.with_name(f".{self.folder.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            files = {DENSE: self._write_dense(unfinished / DENSE)}
            entries = self._write_tables(unfinished, files)
            self._manifest(entries, files).write(unfinished)
            sync(unfinished)
            shutil.rmtree(self.folder, ignore_errors=True)
            unfinished.rename(self.folder)
            sync(self.folder.parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return sum(entry.size for entry in files.values())

    def _write_dense(self, path: Path) -> FileEntry:
        arrays = {name: np.asarray(array, order="C") for name, array in self._arrays.items()}
        save_file(arrays, path, {"optimizer": self._optimizer})
        sync(path)
        return FileEntry.of(path)

    def _write_tables(self, folder: Path, files: dict[str, FileEntry]) -> dict[str, TableEntry]:
        """Writes the tables' files side by side, adds them to `files`, describes the tables."""
        written: dict[str, list[TableFile]] = {}
        with ThreadPoolExecutor(_WRITERS) as threads:
            parts = {
                name: [
                    threads.submit(self._tables[name].write_file, number, folder / file)
                    for number, file in enumerate(_files(name, frozen))
                ]
                for name, frozen in self._frozen.items()
            }
            written = {name: [part.result() for part in parts[name]] for name in parts}
        entries = {}
        for name, frozen in self._frozen.items():
            names = _files(name, frozen)
            for file, entry in zip(names, written[name], strict=True):
                files[file] = FileEntry(entry.bytes, entry.crc32c)
            digest = sum(entry.digest for entry in written[name]) % 2**64
            entries[name] = _entry(self._tables[name], frozen, digest, names)
        return entries

    def _manifest(self, entries: dict[str, TableEntry], files: dict[str, FileEntry]) -> Manifest:
        versions = {"tfhybrid": __version__, "tensorflow": tf.__version__}
        ranks, seed = distributed.size(), current_job().seed
        return Manifest(FORMAT, self.step, self._position, ranks, seed, versions, entries, files)


def _files(table: str, frozen: FrozenTable) -> list[str]:
    return [file_name(table, number) for number in range(frozen.files)]


def _entry(table: Table, frozen: FrozenTable, digest: int, files: list[str]) -> TableEntry:
    return TableEntry(
        dim=table.dim,
        rows=frozen.rows,
        version=frozen.version,
        initializer=list(initializers.get(table.config.initializer).native),
        optimizer=list(table.optimizer),
        state_slots=table.state_slots,
        digest=digest,
        files=files,
    )


def _compare_replicas(tables: dict[str, Table]) -> None:
    """Checks that all hosts have the same tables, bit for bit, before one of them is saved."""
    job = current_job()
    if len(set(job.hosts)) == 1:
        return
    mine = {name: table.digest() for name, table in tables.items()} if job.is_leader else {}
    by_rank = distributed.allgather_object(mine)
    for name, table in tables.items():
        digests = {rank: mine[name] for rank, mine in enumerate(by_rank) if name in mine}
        if len(set(digests.values())) > 1:
            raise CheckpointError(
                f"The replicas of table '{name}' differ at version {table.version}: "
                f"digests by leader's rank {digests}. Nothing was saved."
            )


def _prune(directory: Path, max_to_keep: int | None) -> None:
    if max_to_keep is not None:
        for step in steps(directory)[:-max_to_keep]:
            shutil.rmtree(folder_of(directory, step), ignore_errors=True)
