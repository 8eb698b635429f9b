"""Existing checkpoints of a directory, and the contents of one together with its bases.

This module needs neither TensorFlow nor Horovod.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfhybrid.checkpoint import best, storage
from tfhybrid.checkpoint.manifest import MANIFEST, BaseEntry, FileEntry, Manifest, TableEntry
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.table_file import StoredRows, digest, read_evicted, read_rows
from tfhybrid.errors import CheckpointError

_log = logging.getLogger("tfhybrid.checkpoint")

_CHECKERS = 4  # threads; checksums and digests are computed without Python's lock

_STEP = re.compile(r"step-(\d{10})")


class TableUpdate(NamedTuple):
    """Changes that one checkpoint of a chain makes to a table: evicted keys, then rows."""

    evicted: np.ndarray  # int64 [n]: keys whose rows are removed before `rows` are added
    blocks: Iterable[StoredRows]


class ChainLink(NamedTuple):
    """Checkpoint of a chain, which is a checkpoint with all rows and the deltas after it."""

    folder: Location
    manifest: Manifest

    def check_file(self, name: str) -> None:
        """Verifies the size and checksum of a file.

        Args:
            name: Name of the file in the checkpoint's folder.

        Raises:
            CheckpointError: The file is missing or damaged.
        """
        self.manifest.check_file(self.folder, name)


@dataclasses.dataclass(frozen=True)
class StoredCheckpoint:
    """Checkpoint that is read from disk, with its bases if it is a delta.

    Files are read when they are needed; `check` verifies all of them first.

    A delta has the rows that changed since its base, the checkpoint before it.

    Args:
        chain: Checkpoints from the one with all rows to this one, each the base of the next.

    Example:

    ```python
    stored = StoredCheckpoint.open(locate("checkpoints/"))
    keys = np.concatenate([block.keys for block in stored.rows("item")])
    ```
    """

    chain: tuple[ChainLink, ...]

    @classmethod
    def open(cls, folder: Location) -> StoredCheckpoint:
        """Reads the manifests of a checkpoint and of its bases.

        Args:
            folder: Folder of the checkpoint, as `locate` returns it.

        Returns:
            The checkpoint, whose other files are read later.

        Raises:
            CheckpointError: A manifest is missing or damaged, or is not that of the delta's base.
        """
        chain = [ChainLink(folder, Manifest.read(folder))]
        while (base := chain[0].manifest.base) is not None:
            chain.insert(0, _open_base(chain[0].folder, base))
        return cls(tuple(chain))

    @property
    def folder(self) -> Location:
        """Folder of the checkpoint itself, not of those on which it builds."""
        return self.chain[-1].folder

    @property
    def manifest(self) -> Manifest:
        """Manifest of the checkpoint itself. Its numbers of rows include those of the bases."""
        return self.chain[-1].manifest

    def base(self) -> BaseEntry:
        """Returns the reference by which a delta (the rows changed since) names this checkpoint.

        Raises:
            OSError: The manifest cannot be read.
        """
        return BaseEntry(self.manifest.step, _checksum(self.folder), self.manifest.sequence)

    def check(self) -> dict[str, list[TableUpdate]]:
        """Verifies the size, checksum and rows of every file, including those of the bases.

        Returns:
            The updates of each table, as `updates` yields them. Local files stay mapped and are not
            opened again.

        Raises:
            CheckpointError: A file is missing or damaged, or its rows are not those that were
                saved.
        """
        links = [(link, name) for link in self.chain for name in link.manifest.files]
        with ThreadPoolExecutor(_CHECKERS) as threads:
            for _ in threads.map(lambda each: each[0].check_file(each[1]), links):
                pass  # raises the error of the first bad file
            return {table: self._checked(table, threads) for table in self.manifest.tables}

    def _checked(self, table: str, threads: Executor) -> list[TableUpdate]:
        updates = list(self.updates(table))
        if not isinstance(self.folder, Path):  # remote files would be read again
            return updates
        updates = [TableUpdate(update.evicted, list(update.blocks)) for update in updates]
        for (folder, manifest), update in zip(self._links(table), updates, strict=True):
            digests = threads.map(digest, update.blocks)
            check_digest(folder, table, manifest.tables[table], digests)
        return updates

    def check_table(self, table: str) -> None:
        """Verifies the size and checksum of the files with a table's rows.

        Args:
            table: Name of the table.

        Raises:
            CheckpointError: The checkpoint has no such table, or a file is missing or damaged.
        """
        for folder, manifest in self._links(table):
            for name in manifest.tables[table].all_files:
                manifest.check_file(folder, name)

    def updates(self, table: str) -> Iterator[TableUpdate]:
        """Yields a table's updates from the checkpoints of the chain, to be applied in that order.

        Rows of a later block overwrite those of an earlier one.

        Args:
            table: Name of the table.

        Raises:
            CheckpointError: The checkpoint has no such table, or a file does not match its
                manifest.
        """
        for folder, manifest in self._links(table):
            entry = manifest.tables[table]
            evicted = np.empty(0, np.int64)
            if entry.evicted is not None:
                evicted = read_evicted(folder / entry.evicted)
            yield TableUpdate(evicted, _blocks(folder, entry))

    def rows(self, table: str) -> list[StoredRows]:
        """Returns a table's rows in blocks; in the order of creation if no row is ever evicted.

        Blocks are views of mapped files, except for a delta, whose rows are merged in memory.

        Args:
            table: Name of the table.

        Raises:
            CheckpointError: The checkpoint has no such table, a file does not match its manifest,
                or rows are missing.
        """
        blocks: list[StoredRows] = []
        for update in self.updates(table):
            if len(update.evicted):
                blocks = [_without(block, update.evicted) for block in blocks]
            blocks += update.blocks
        if len(self._links(table)) == 1:
            return blocks
        merged, count = _merged(blocks), self.manifest.tables[table].rows
        if len(merged.keys) != count:
            raise CheckpointError(
                f"Table '{table}' of {self.folder} must have {count} rows, with its bases. "
                f"Received: {len(merged.keys)}"
            )
        return [merged]

    def _links(self, table: str) -> list[ChainLink]:
        """Returns the part of the chain that a table needs, from the last one with all its rows."""
        if table not in self.manifest.tables:
            raise CheckpointError(
                f"{self.folder} has the tables {sorted(self.manifest.tables)}. Received: {table!r}"
            )
        last = self.manifest.tables[table]
        links: list[ChainLink] = []
        for link in reversed(self.chain):
            entry = link.manifest.tables.get(table)
            shape = entry and (entry.dim, *entry.state_shape, entry.history)
            if entry is None or shape != (last.dim, *last.state_shape, last.history):
                raise CheckpointError(
                    f"{links[0].folder} is a delta of table '{table}' in {link.folder}, which must "
                    f"have the same dim, state and history. Received: {shape}"
                )
            links.insert(0, link)
            if entry.whole:
                break
        return links


def folder_of(directory: Location, step: int) -> Location:
    """Returns the folder of the checkpoint of a step.

    Args:
        directory: Directory of the checkpoints.
        step: Step of the checkpoint, which need not exist.
    """
    return directory / f"step-{step:010d}"


def steps(directory: str | os.PathLike[str]) -> list[int]:
    """Returns the steps of a directory's checkpoints, oldest first.

    Args:
        directory: Directory of the checkpoints: a path, or a URL that `tf.io.gfile` supports. It
            need not exist.

    Returns:
        The steps; none if the directory does not exist.

    Raises:
        OSError: The directory exists and cannot be read, or the store of a URL cannot be accessed.

    Example:

    >>> steps("/nowhere")
    []
    """
    path = storage.location(directory)
    if not path.is_dir():
        return []
    named = [(_STEP.fullmatch(entry.name), entry) for entry in path.iterdir()]
    # Remote stores cannot rename: there a folder is complete once it has a manifest.
    return sorted(int(m[1]) for m, entry in named if m and (entry / MANIFEST).exists())


def locate(directory: str | os.PathLike[str], step: int | None = None) -> Location:
    """Returns the folder of a checkpoint.

    Args:
        directory: Directory of the checkpoints, or the folder of one checkpoint.
        step: Step of the checkpoint. Default: the newest.

    Raises:
        CheckpointError: There is no checkpoint, or none of that step.
        OSError: The directory exists and cannot be read.

    Example:

    ```python
    StoredCheckpoint.open(locate("checkpoints/")).manifest.tables
    ```
    """
    path = storage.location(directory)
    if step is None and (path / MANIFEST).exists():
        return path
    return newest(path, steps(path), step)


def newest(directory: Location, existing: list[int], step: int | None = None) -> Location:
    """Returns the folder of the given step, or of the newest existing one.

    Args:
        directory: Directory of the checkpoints.
        existing: Steps that have a checkpoint in the directory, ascending.
        step: Step of the checkpoint. Default: the newest.

    Raises:
        CheckpointError: There is no checkpoint, or none of that step.
    """
    if not existing:
        received = "a file" if directory.exists() else "a path that does not exist"
        if directory.is_dir():
            received = "a directory without checkpoints"
        of_step = "" if step is None else f", step={step}"
        raise CheckpointError(f"{directory} has no checkpoint. Received: {received}{of_step}")
    if step not in (None, *existing):
        raise CheckpointError(
            f"{directory} has checkpoints of the steps {existing}. Received: step={step}"
        )
    return folder_of(directory, existing[-1] if step is None else step)


def is_base(directory: Location, base: BaseEntry) -> bool:
    """Returns whether the base of a delta still exists in a directory.

    Args:
        directory: Directory of the checkpoints.
        base: Step, checksum and number of the base.
    """
    folder = folder_of(directory, base.step)
    try:
        return _checksum(folder) == base.crc32c
    except OSError:
        return False


def sweep(directory: Location) -> None:
    """Removes the incomplete checkpoints of killed processes from a local directory."""
    if isinstance(directory, Path):
        for left in directory.glob(".step-*.*"):
            storage.remove(left)


def prune(directory: Location, max_to_keep: int | None) -> None:
    """Removes all checkpoints but the newest ones, the best one, and their bases.

    Later checkpoints are removed first, so that no delta exists without its base. Nothing is
    removed if the bases of a checkpoint to keep cannot be read; a warning is logged.

    Args:
        directory: Directory of the checkpoints.
        max_to_keep: Number of newest checkpoints to keep. `None` keeps all.

    Raises:
        CheckpointError: The record of the best checkpoint is damaged.
        OSError: The directory cannot be read.
    """
    existing = steps(directory)
    if max_to_keep is None or len(existing) <= max_to_keep:
        return
    needed = set(existing[-max_to_keep:])
    pinned = best.read(directory)
    if pinned is not None and pinned.step in existing:
        needed.add(pinned.step)
    for step in sorted(needed):
        try:
            chain = StoredCheckpoint.open(folder_of(directory, step)).chain
        except CheckpointError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or isinstance(cause, FileNotFoundError):
                continue  # a broken checkpoint needs no bases
            _log.warning(
                "No older checkpoints are removed, because a newer one may need them: %s", error
            )
            return
        needed |= {link.manifest.step for link in chain}
    for step in reversed(existing):
        if step not in needed:
            storage.remove(folder_of(directory, step), MANIFEST)


def _open_base(folder: Location, base: BaseEntry) -> ChainLink:
    base_folder = folder_of(folder.parent, base.step)
    try:
        checksum = _checksum(base_folder)
    except OSError as error:
        raise CheckpointError(
            f"{folder} is a delta and needs its base: {base_folder} cannot be read: {error}"
        ) from error
    manifest = Manifest.read(base_folder)
    same = checksum == base.crc32c and manifest.sequence == base.sequence
    if not same:
        raise CheckpointError(
            f"{folder} is a delta of a checkpoint other than {base_folder}: wanted {base}. "
            f"Received: {BaseEntry(manifest.step, checksum, manifest.sequence)}"
        )
    return ChainLink(base_folder, manifest)


def _checksum(folder: Location) -> int:
    return FileEntry.of(folder / MANIFEST).crc32c


def _blocks(folder: Location, entry: TableEntry) -> Iterator[StoredRows]:
    """Yields the rows of a table's files; then checks their number if the table is whole."""
    rows = 0
    for file in entry.files:
        block = read_rows(folder / file, entry.dim, entry.state_shape, history=entry.history)
        rows += len(block.keys)
        yield block
    if entry.whole and rows != entry.rows:
        raise CheckpointError(
            f"The files {entry.files} in {folder} must have {entry.rows} rows. Received: {rows}"
        )


def check_digest(folder: Location, table: str, entry: TableEntry, digests: Iterable[int]) -> None:
    """Compares the digests (hashes) of a table's blocks with the digest of the saved rows.

    Args:
        folder: Folder of the checkpoint, for the error.
        table: Name of the table, for the error.
        entry: Entry of the table in the manifest.
        digests: Digest of each of the table's blocks, from `table_file.digest`.

    Raises:
        CheckpointError: The rows are not those that were saved.
    """
    total = sum(digests) % 2**64
    if total != entry.digest:
        raise CheckpointError(
            f"Table '{table}' in {folder} does not have the rows that were saved: wanted rows with "
            f"digest {entry.digest:016x}. Received: {total:016x} of {entry.files}"
        )


def _merged(blocks: list[StoredRows]) -> StoredRows:
    """Merges blocks: a key keeps its first position and its last row."""
    all_rows = StoredRows(*(np.concatenate(arrays) for arrays in zip(*blocks, strict=True)))
    _, first, numbers = np.unique(all_rows.keys, return_index=True, return_inverse=True)
    last = np.empty(len(first), np.int64)
    last[numbers] = np.arange(len(all_rows.keys))  # for equal indices NumPy keeps the last value
    rows = last[np.argsort(first)]
    return StoredRows(*(array[rows] for array in all_rows))


def _without(block: StoredRows, keys: np.ndarray) -> StoredRows:
    stays = ~np.isin(block.keys, keys)
    return StoredRows(*(array[stays] for array in block))
