"""Checkpoints that are there: which a directory has, and what one holds together with its bases.

Neither TensorFlow nor Horovod is needed.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfhybrid.checkpoint import best, storage
from tfhybrid.checkpoint.manifest import MANIFEST, Base, FileEntry, Manifest, TableEntry
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.table_file import Rows, digest, read_evicted, read_rows
from tfhybrid.errors import CheckpointError

_log = logging.getLogger("tfhybrid.checkpoint")

_STEP = re.compile(r"step-(\d{10})")


class TableUpdate(NamedTuple):
    """What a checkpoint has of a table, beside its base."""

    evicted: np.ndarray  # int64 [n]: keys whose rows go before the others come
    blocks: Iterable[Rows]


class Link(NamedTuple):
    """A checkpoint of a chain: its folder and manifest."""

    folder: Location
    manifest: Manifest


@dataclasses.dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint and, if it is a delta, those that it adds to.

    Example:

    ```python
    stored = StoredCheckpoint.open(locate("checkpoints/"))
    keys = np.concatenate([block.keys for block in stored.rows("item")])
    ```
    """

    chain: tuple[Link, ...]  # the one with all rows first

    @classmethod
    def open(cls, folder: Location) -> StoredCheckpoint:
        """Reads the manifests of a checkpoint and of its bases.

        Raises:
            CheckpointError: One is missing, damaged, or not the one that the delta was made from.
        """
        chain = [Link(folder, Manifest.read(folder))]
        while (base := chain[0].manifest.base) is not None:
            chain.insert(0, _open_base(chain[0].folder, base))
        return cls(tuple(chain))

    @property
    def folder(self) -> Location:
        """The checkpoint's own."""
        return self.chain[-1].folder

    @property
    def manifest(self) -> Manifest:
        """The checkpoint's own; that of a delta has the tables' numbers of rows in all."""
        return self.chain[-1].manifest

    def base(self) -> Base:
        """Returns what the next delta is based on."""
        return Base(self.manifest.step, _checksum(self.folder), self.manifest.sequence)

    def check(self) -> dict[str, list[TableUpdate]]:
        """Compares every file with its size, checksum and rows, those of the bases too.

        Returns:
            What there is of each table, as `updates` yields it. Local files are mapped, and not
            opened again.

        Raises:
            CheckpointError: One is missing or damaged, or holds other rows than were saved.
        """
        for folder, manifest in self.chain:
            for name in manifest.files:
                manifest.check_file(folder, name)
        return {table: self._checked(table) for table in self.manifest.tables}

    def _checked(self, table: str) -> list[TableUpdate]:
        updates = list(self.updates(table))
        if not isinstance(self.folder, Path):  # what is remote would be read once more
            return updates
        updates = [TableUpdate(update.evicted, list(update.blocks)) for update in updates]
        for (folder, manifest), update in zip(self._links(table), updates, strict=True):
            check_digest(folder, table, manifest.tables[table], update.blocks)
        return updates

    def check_table(self, table: str) -> None:
        """Compares the files that a table's rows come from with their sizes and checksums.

        Raises:
            CheckpointError: There is no such table, or a file is missing or damaged.
        """
        for folder, manifest in self._links(table):
            for name in manifest.tables[table].all_files:
                manifest.check_file(folder, name)

    def updates(self, table: str) -> Iterator[TableUpdate]:
        """Yields what the checkpoints of the chain have of a table, to be applied in that order.

        Rows of a later block overwrite those of an earlier.

        Raises:
            CheckpointError: There is no such table, or a file is not what its manifest says.
        """
        for folder, manifest in self._links(table):
            entry = manifest.tables[table]
            evicted = np.empty(0, np.int64)
            if entry.evicted is not None:
                evicted = read_evicted(folder / entry.evicted)
            yield TableUpdate(evicted, _blocks(folder, entry))

    def rows(self, table: str) -> list[Rows]:
        """Returns a table's rows in blocks, in the order of creation where none is ever evicted.

        Blocks are views of mapped files, but for a delta: its rows are gathered in memory.

        Raises:
            CheckpointError: As of `updates`, or rows are missing.
        """
        blocks: list[Rows] = []
        for update in self.updates(table):
            if len(update.evicted):
                blocks = [_without(block, update.evicted) for block in blocks]
            blocks += update.blocks
        if len(self._links(table)) == 1:
            return blocks
        merged, wanted = _merged(blocks), self.manifest.tables[table].rows
        if len(merged.keys) != wanted:
            raise CheckpointError(
                f"Table '{table}' of {self.folder} wants {wanted} rows, with its bases. "
                f"Received: {len(merged.keys)}"
            )
        return [merged]

    def _links(self, table: str) -> list[Link]:
        """Returns what has a table's rows: the last checkpoint with all, and those that follow."""
        if table not in self.manifest.tables:
            raise CheckpointError(
                f"{self.folder} has the tables {sorted(self.manifest.tables)}. Received: {table!r}"
            )
        last = self.manifest.tables[table]
        found: list[Link] = []
        for link in reversed(self.chain):
            entry = link.manifest.tables.get(table)
            shape = entry and (entry.dim, *entry.state_shape, entry.history)
            if entry is None or shape != (last.dim, *last.state_shape, last.history):
                raise CheckpointError(
                    f"{found[0].folder} adds to table '{table}' of {link.folder}, which wants the "
                    f"same dim and state. Received: {shape}"
                )
            found.insert(0, link)
            if entry.whole:
                break
        return found


def folder_of(directory: Location, step: int) -> Location:
    """Returns the folder of the checkpoint of a step."""
    return directory / f"step-{step:010d}"


def steps(directory: str | os.PathLike[str]) -> list[int]:
    """Returns the steps of which a directory has a checkpoint, oldest first.

    Args:
        directory: A path, or a URL that `tf.io.gfile` reaches.

    Example:

    >>> steps("/nowhere")
    []
    """
    path = storage.location(directory)
    if not path.is_dir():
        return []
    named = [(_STEP.fullmatch(entry.name), entry) for entry in path.iterdir()]
    # A remote store cannot rename: there a folder is complete when it has a manifest.
    return sorted(int(m[1]) for m, entry in named if m and (entry / MANIFEST).exists())


def locate(directory: str | os.PathLike[str], step: int | None = None) -> Location:
    """Returns the folder of a checkpoint.

    Args:
        directory: Where checkpoints are kept, or the folder of one.
        step: Which one. Defaults to the newest.

    Raises:
        CheckpointError: There is none, or none of that step.

    Example:

    ```python
    StoredCheckpoint.open(locate("checkpoints/")).manifest.tables
    ```
    """
    path = storage.location(directory)
    if step is None and (path / MANIFEST).exists():
        return path
    return newest(path, steps(path), step)


def newest(directory: Location, known: list[int], step: int | None = None) -> Location:
    """Returns the folder of the newest of the known steps, or of the one asked for.

    Raises:
        CheckpointError: There is none, or none of that step.
    """
    if not known:
        raise CheckpointError(f"{directory} has no checkpoint. Received: step={step}")
    if step not in (None, *known):
        raise CheckpointError(
            f"{directory} has checkpoints of the steps {known}. Received: step={step}"
        )
    return folder_of(directory, known[-1] if step is None else step)


def is_base(directory: Location, base: Base) -> bool:
    """Whether the checkpoint is still there that a delta would add to."""
    folder = folder_of(directory, base.step)
    try:
        return _checksum(folder) == base.crc32c
    except OSError:
        return False


def sweep(directory: Location) -> None:
    """Removes what killed processes left of checkpoints that they wrote or removed."""
    if isinstance(directory, Path):
        for left in directory.glob(".step-*.*"):
            storage.remove(left)


def prune(directory: Location, max_to_keep: int | None) -> None:
    """Removes all but the newest checkpoints, the best one, and those that these add to.

    The last one first: a delta is never there without what it adds to.
    """
    known = steps(directory)
    if max_to_keep is None or len(known) <= max_to_keep:
        return
    needed = set(known[-max_to_keep:])
    pinned = best.read(directory)
    if pinned is not None and pinned.step in known:
        needed.add(pinned.step)
    for step in sorted(needed):
        try:
            chain = StoredCheckpoint.open(folder_of(directory, step)).chain
        except CheckpointError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or isinstance(cause, FileNotFoundError):
                continue  # what is broken needs nothing
            _log.warning("No older checkpoints are removed, which it may add to: %s", error)
            return
        needed |= {link.manifest.step for link in chain}
    for step in reversed(known):
        if step not in needed:
            storage.remove(folder_of(directory, step), MANIFEST)


def _open_base(folder: Location, base: Base) -> Link:
    found = folder_of(folder.parent, base.step)
    try:
        checksum = _checksum(found)
    except OSError as error:
        raise CheckpointError(
            f"{folder} is a delta and needs its base: {found} cannot be read: {error}"
        ) from error
    manifest = Manifest.read(found)
    same = checksum == base.crc32c and manifest.sequence == base.sequence
    if not same:
        raise CheckpointError(
            f"{folder} is a delta of another checkpoint than {found}: wanted {base}. Received: "
            f"{Base(manifest.step, checksum, manifest.sequence)}"
        )
    return Link(found, manifest)


def _checksum(folder: Location) -> int:
    return FileEntry.of(folder / MANIFEST).crc32c


def _blocks(folder: Location, entry: TableEntry) -> Iterator[Rows]:
    """Yields a table's files; then checks that a whole table had as many rows as it should."""
    rows = 0
    for file in entry.files:
        block = read_rows(folder / file, entry.dim, entry.state_shape, history=entry.history)
        rows += len(block.keys)
        yield block
    if entry.whole and rows != entry.rows:
        raise CheckpointError(
            f"The files {entry.files} in {folder} want {entry.rows} rows together. Received: {rows}"
        )


def check_digest(folder: Location, table: str, entry: TableEntry, blocks: Iterable[Rows]) -> None:
    """Compares the rows of a table's files with the digest of those that were saved.

    Raises:
        CheckpointError: They are others.
    """
    found = sum(map(digest, blocks)) % 2**64
    if found != entry.digest:
        raise CheckpointError(
            f"Table '{table}' in {folder} is not what was saved: wanted rows with digest "
            f"{entry.digest:016x}. Received: {found:016x} of {entry.files}"
        )


def _merged(blocks: list[Rows]) -> Rows:
    """Lays blocks together: a key's place is its first, its row is its last."""
    all_rows = Rows(*(np.concatenate(arrays) for arrays in zip(*blocks, strict=True)))
    _, first, numbers = np.unique(all_rows.keys, return_index=True, return_inverse=True)
    last = np.empty(len(first), np.int64)
    last[numbers] = np.arange(len(all_rows.keys))  # of equal indices NumPy keeps the last value
    rows = last[np.argsort(first)]
    return Rows(*(array[rows] for array in all_rows))


def _without(block: Rows, keys: np.ndarray) -> Rows:
    stays = ~np.isin(block.keys, keys)
    return Rows(*(array[stays] for array in block))
