"""Saving of checkpoints: freezes a model at one step, and writes it while training continues."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import safetensors.numpy
import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid._version import __version__
from tfhybrid.checkpoint import best, dense, lineage, storage
from tfhybrid.checkpoint.manifest import (
    DENSE,
    FORMAT,
    MANIFEST,
    BaseEntry,
    FileEntry,
    Manifest,
    TableEntry,
)
from tfhybrid.checkpoint.owned_rows import OwnedRows
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.stored import folder_of, is_base, prune
from tfhybrid.checkpoint.table_file import evicted_file_name, file_name
from tfhybrid.checkpoint.writers import WriterNote, Writers
from tfhybrid.core import native
from tfhybrid.data.position import AnyPosition, cursor_of
from tfhybrid.errors import CheckpointError, StoreError, TfhybridError
from tfhybrid.features.description import describe
from tfhybrid.job import current_job
from tfhybrid.monitoring import metrics
from tfhybrid.store import FrozenTable, Table, TableFile

_log = logging.getLogger("tfhybrid.checkpoint")

# Threads. Each holds one file in memory: at most 64 MB of embeddings, and their states.
_WRITERS = 4


@distributed.call("checkpoint.save")
def save(
    model: keras.Model,
    directory: str | os.PathLike[str],
    position: AnyPosition,
    *,
    max_to_keep: int | None = None,
) -> Location:
    """Saves a model between two steps and waits until it is on disk; every rank must call it.

    Args:
        model: Model, built, and compiled with a `tfhybrid.DistributedOptimizer`.
        directory: Directory of the checkpoints, a path or a URL that `tf.io.gfile` supports;
            created if it does not exist.
        position: Position at which training will continue: the result of the data's `position`, or
            another JSON object, which `restore` returns unchanged.
        max_to_keep: Number of newest checkpoints to keep. Default: `None`, all.

    Returns:
        The checkpoint's folder. A checkpoint of the same step is replaced.

    Raises:
        CheckpointError: On all ranks: writing failed, or the directory has checkpoints of another
            job. Existing checkpoints stay.
        ConfigError: On all ranks: the ranks are not at the same step, or their learning rates
            differ; or the position is not a JSON object.

    Example:

    ```python
    tfhybrid.checkpoint.save(model, "checkpoints/", tfhybrid.data.Position(epoch=1, step=0))
    ```
    """
    snapshot = ModelSnapshot(model, directory, position)
    together(lambda: snapshot.write(max_to_keep))
    return snapshot.folder


def together(work: Callable[[], object]) -> None:
    """Runs a function on every rank, and raises on all ranks if it fails on one.

    Every rank must call it.

    Args:
        work: Function to run; may be another one on each rank.

    Raises:
        CheckpointError: `work` failed on another rank, or raised `StoreError` here; contains the
            errors.
        Exception: `work` raised it on this rank.
    """
    try:
        distributed.together(work)
    except StoreError as error:  # of another rank
        raise CheckpointError(str(error)) from error


class _Part(NamedTuple):
    """Part of a frozen table, and the name of its file.

    `number` counts the parts of all replicated tables, which leaders write in turn; `None` for a
    sharded table.
    """

    table: str
    part: int
    file: str
    number: int | None


class ModelSnapshot:
    """Model at one step, frozen without a copy of its tables.

    Every rank creates a snapshot between two steps and then calls `write`, which may run on another
    thread while training continues. Until `write` returns, the model can be neither saved again nor
    restored.

    Args:
        model: Model, built, and compiled with a `tfhybrid.DistributedOptimizer`.
        directory: Directory of the checkpoints, a path or a URL.
        position: Position at which training will continue.
        base: Checkpoint since which changes were tracked, to save only the changes; read on rank 0
            alone. All rows are saved if it is `None`, the default, or was removed.
        track: Whether to track changed rows from now on, for a later snapshot with a base. Default:
            no.

    Raises:
        CheckpointError: On all ranks: a table is being saved, or the directory has checkpoints of
            another job.
        ConfigError: On all ranks: the ranks are not at the same step, or their learning rates
            differ; or the position is not a JSON object.
    """

    def __init__(
        self,
        model: keras.Model,
        directory: str | os.PathLike[str],
        position: AnyPosition,
        *,
        base: BaseEntry | None = None,
        track: bool = False,
    ) -> None:
        self._job = current_job()
        self.step = int(model.optimizer.iterations)
        rate = float(model.optimizer.learning_rate)
        distributed.check_same({"step of the optimizer": self.step, "learning rate": rate})
        self.folder = folder_of(storage.location(directory), self.step)
        self._replaces = False  # on rank 0: whether the step already has a checkpoint
        self._unclaimed: OSError | None = None  # on rank 0: why the directory cannot be read
        if base is not None and (base.step >= self.step or not is_base(self.folder.parent, base)):
            base = None
        together(self._claim)
        self._base: BaseEntry | None = distributed.broadcast_object(base)
        self._position = cursor_of(position)
        self._optimizer = type(model.optimizer).__name__
        self._arrays = dense.gather(model)
        self._names = dense.names(model)
        self._features = describe(model)
        self._tables = dense.saved_tables_of(model)
        self._frozen: dict[str, FrozenTable] = {}
        try:
            distributed.together(lambda: self._freeze(track))
        except TfhybridError as error:
            self._thaw()  # on the hosts where it went well
            raise CheckpointError(f"{self.folder} cannot be saved. {error}") from error
        self._writers = Writers.agree(self.folder, self._unclaimed)
        self._sharded = [name for name, table in self._tables.items() if table.is_sharded]
        if self._sharded and self._writers.blind:
            self._thaw()
            raise CheckpointError(
                f"{self.folder} cannot be saved: each host writes its own rows of the sharded "
                f"tables {self._sharded}. Received: a directory that the hosts "
                f"{self._writers.blind} do not see"
            )

    def write(
        self, max_to_keep: int | None = None, pin: best.Best | None = None
    ) -> BaseEntry | None:
        """Writes this rank's part of the checkpoint, which appears complete or not at all.

        Rank 0 waits for the other leaders. May be called once, on any thread.

        Args:
            max_to_keep: Number of newest checkpoints to keep, with those that they depend on.
                Default: `None`, all.
            pin: Record that makes this the best checkpoint, which is kept, too. Default: `None`, it
                is not the best.

        Returns:
            The base for the next snapshot on rank 0, `None` on other ranks.

        Raises:
            CheckpointError: Writing failed; existing checkpoints stay.
        """
        started = time.monotonic()
        try:
            if distributed.rank() > 0:
                self._write_own_files()
                return None
            base, size = self._write()
            if pin is not None:
                best.write(self.folder.parent, pin)
            prune(self.folder.parent, max_to_keep)
        except Exception as error:  # any error must reach the thread that waits for the result
            metrics.count(metrics.CHECKPOINT_FAILURES)
            raise CheckpointError(
                f"The checkpoint {self.folder} could not be written. {error}"
            ) from error
        finally:
            self._thaw()
        seconds = time.monotonic() - started
        metrics.note_checkpoint(seconds, size)
        what = "Saved" if self._base is None else f"Saved changes since step {self._base.step}:"
        _log.info("%s %s: %.1f MB in %.1f s", what, self.folder, size / 1e6, seconds)
        return base

    def _claim(self) -> None:
        if distributed.rank() > 0:
            return
        try:
            self._replaces = lineage.claim(self.folder.parent, self.step)
        except OSError as error:  # raised when the checkpoint is written: training continues
            self._unclaimed = error

    def _freeze(self, track: bool) -> None:
        if not self._job.is_leader:
            return
        try:
            for name, table in self._tables.items():
                only_changed = self._base is not None
                self._frozen[name] = table.writer.freeze(lineage.CURSOR, only_changed=only_changed)
                if track and self._frozen[name].whole:
                    table.writer.track_changes(lineage.CURSOR)
        except BaseException:
            self._thaw()
            raise

    def _thaw(self) -> None:
        for name in self._frozen:
            with contextlib.suppress(StoreError):  # the job has ended, so nothing is frozen
                self._tables[name].writer.thaw()
        self._frozen = {}

    def _write_own_files(self) -> None:
        """Writes this leader's files and reports to rank 0; does nothing if it is no leader."""
        if not self._writers.writes:
            return
        try:
            note = self._write_tables()
        except Exception as error:
            self._writers.announce(error)
            raise
        self._writers.announce(note)

    def _write(self) -> tuple[BaseEntry, int]:
        """Writes the checkpoint together with the other leaders; also returns its size."""
        unfinished = self._writers.unfinished
        if unfinished is None:
            raise self._writers.failure or OSError("the folder could not be created")
        try:
            dense_file = _write_arrays(unfinished / DENSE, self._arrays, self._names)
            files = {DENSE: dense_file}
            note = self._write_tables()
            all_rows = self._of_replicas(note) | self._writers.compare(note)
            for rows in all_rows.values():
                files |= {
                    name: FileEntry(file.bytes, file.crc32c) for name, file in rows.files.items()
                }
            files |= _write_evicted(unfinished, all_rows)
            base = self._manifest(all_rows, files).write(unfinished)
            storage.finish(unfinished, self.folder, replace=self._replaces)
        except BaseException:
            storage.remove(unfinished, MANIFEST)
            raise
        return base, sum(entry.size for entry in files.values())

    def _write_tables(self) -> WriterNote:
        """Writes this leader's part of the tables' files in parallel, and describes all files."""
        parts = self._parts()
        with ThreadPoolExecutor(_WRITERS) as threads:
            described = dict(zip(parts, threads.map(self._write_part, parts), strict=True))
        files: dict[str, dict[str, TableFile]] = {name: {} for name in self._frozen}
        for part, file in described.items():
            files[part.table][part.file] = file
        replicas: dict[str, TableFile] = {}
        owned = {}
        for name, of_table in files.items():
            if name in self._sharded:
                owned[name] = OwnedRows(self._frozen[name], of_table, self._removed_keys(name))
            else:
                replicas |= of_table
        return WriterNote(replicas, owned)

    def _of_replicas(self, note: WriterNote) -> dict[str, OwnedRows]:
        """Returns the rows of replicated tables, which are all on this host, by table."""
        table_of = {part.file: part.table for part in self._parts()}
        return {
            name: OwnedRows(
                frozen,
                {path: file for path, file in note.files.items() if table_of[path] == name},
                self._removed_keys(name),
            )
            for name, frozen in self._frozen.items()
            if name not in note.owned
        }

    def _removed_keys(self, table: str) -> np.ndarray:
        frozen = self._frozen[table]
        if not frozen.removed:
            return np.empty(0, np.int64)
        return self._tables[table].writer.removed_keys(frozen)

    def _write_part(self, part: _Part) -> TableFile:
        writer = self._tables[part.table].writer
        if part.number is not None and not self._writers.is_mine(part.number):
            return writer.write_part(part.part, None)
        assert self._writers.unfinished is not None
        with storage.local_file(self._writers.unfinished / part.file) as path:
            return writer.write_part(part.part, path)

    def _parts(self) -> list[_Part]:
        parts: list[_Part] = []
        replicas = 0
        host = self._job.engine.host
        for name, frozen in self._frozen.items():
            for part in range(frozen.parts):
                if name in self._sharded:
                    parts.append(_Part(name, part, file_name(name, part, host), None))
                else:
                    parts.append(_Part(name, part, file_name(name, part), replicas))
                    replicas += 1
        return parts

    def _manifest(self, rows: dict[str, OwnedRows], files: dict[str, FileEntry]) -> Manifest:
        tables = {name: _entry(self._tables[name], rows[name]) for name in self._frozen}
        return Manifest(
            format=FORMAT,
            step=self.step,
            position=self._position,
            ranks=distributed.size(),
            seed=self._job.seed,
            optimizer=self._optimizer,
            base=self._base,
            versions={"tfhybrid": __version__, "tensorflow": tf.__version__},
            tables=tables,
            files=files,
            writer=lineage.writer(),
            features=self._features,
        )


def _write_arrays(
    path: Location, arrays: dict[str, np.ndarray], names: dict[str, str] | None = None
) -> FileEntry:
    in_order = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = safetensors.numpy.save(in_order, metadata=names)
    storage.write(path, content)
    return FileEntry(len(content), native.crc32c(content))


def _write_evicted(folder: Location, all_rows: dict[str, OwnedRows]) -> dict[str, FileEntry]:
    """Writes the keys of each table that were evicted since the base, where there are any."""
    return {
        evicted_file_name(name): _write_arrays(
            folder / evicted_file_name(name), {"keys": np.unique(rows.evicted)}
        )
        for name, rows in all_rows.items()
        if rows.frozen.removed
    }


def _entry(table: Table, rows: OwnedRows) -> TableEntry:
    frozen = rows.frozen
    return TableEntry(
        dim=table.dim,
        rows=frozen.rows,
        version=frozen.version,
        initializer=list(table.config.initializer.native),
        optimizer=list(table.optimizer),
        state_slots=table.state_shape[0],
        expected_rows=table.config.expected_rows,
        whole=frozen.whole,
        digest=sum(file.digest for file in rows.files.values()) % 2**64,
        files=list(rows.files),
        decay=frozen.decay,
        history=table.keeps_history,
        event_time=None if frozen.event_time == native.NO_TIME else frozen.event_time,
        evicted=evicted_file_name(table.name) if frozen.removed else None,
        optimizer_start=table.optimizer_start,
        unseen=table.unseen,
    )
