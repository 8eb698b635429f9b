"""What a checkpoint consists of, and how its files are told from damaged ones.

    DIRECTORY/step-0000001200/
        manifest.json              this module; names every other file with its size and checksum
        dense.safetensors          weights, optimizer, and what differs from rank to rank
        TABLE-00000.safetensors    keys [n], embeddings [n, dim], states [n, slots, dim]
        TABLE-00001.safetensors    ... the next block of rows

A checkpoint is written under a name that starts with a dot and renamed when it is complete and
synced, so a folder named `step-*` is complete.

Whoever reads one believes nothing of it: every field of the manifest is checked for type and range
when its dataclass is made, and sizes before anything is allocated. Neither TensorFlow nor Horovod
is needed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfhybrid.checkpoint.untrusted_json import (
    are_numbers,
    is_count,
    is_text,
    parse_object,
    want,
)
from tfhybrid.errors import CheckpointError
from tfhybrid.store import native

FORMAT = 1
MANIFEST = "manifest.json"
DENSE = "dense.safetensors"
_STEP = re.compile(r"step-(\d{10})")
_FILE_NAME = re.compile(r"[A-Za-z0-9_.%~-]{1,255}")
_MAX_MANIFEST_BYTES = 64 << 20  # a hundred thousand blocks
_MAX_DIM = 65536
_READ_BYTES = 4 << 20


class Position(NamedTuple):
    """Where training goes on: the epoch, and the steps of it that are done."""

    epoch: int
    step: int


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A file of a checkpoint: bytes and CRC-32C of its content.

    Raises:
        ValueError: A field is no number of its kind.
    """

    size: int
    crc32c: int

    def __post_init__(self) -> None:
        want(is_count(self.size, 2**63), "a size in bytes", self.size)
        want(is_count(self.crc32c, 2**32), "a checksum of 32 bits", self.crc32c)

    @classmethod
    def of(cls, path: Path, on_read: Callable[[int], None] | None = None) -> FileEntry:
        """Reads a file and describes it.

        Args:
            path: The file.
            on_read: Called with the number of bytes after each piece that was read.

        Raises:
            OSError: It is missing, no plain file or cannot be read.
        """
        if path.exists() and not path.is_file():  # reading from a pipe would never end
            raise OSError(f"{path} is not a plain file")
        size = checksum = 0
        piece = bytearray(_READ_BYTES)
        content = np.frombuffer(piece, np.uint8)
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(piece):
                checksum = native.crc32c(content[:count], checksum)
                size += count
                if on_read is not None:
                    on_read(count)
        return cls(size, checksum)


@dataclasses.dataclass(frozen=True)
class TableEntry:
    """A table of a checkpoint.

    Raises:
        ValueError: A field is not of its type, or out of range.
    """

    dim: int
    rows: int
    version: int
    initializer: list[float]
    optimizer: list[float]
    state_slots: int
    digest: int
    files: list[str]

    def __post_init__(self) -> None:
        want(is_count(self.dim, _MAX_DIM + 1) and self.dim > 0, "a dim", self.dim)
        want(is_count(self.rows, 2**63), "a number of rows", self.rows)
        want(is_count(self.version, 2**64), "a version", self.version)
        want(are_numbers(self.initializer), "an initializer", self.initializer)
        want(are_numbers(self.optimizer), "an optimizer", self.optimizer)
        want(is_count(self.state_slots, 256), "a number of state slots", self.state_slots)
        want(is_count(self.digest, 2**64), "a digest of 64 bits", self.digest)
        names = isinstance(self.files, list) and all(isinstance(name, str) for name in self.files)
        want(names and len(set(self.files)) == len(self.files), "names of files", self.files)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the files: key, embedding and states."""
        return 8 + 4 * self.dim * (1 + self.state_slots)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A checkpoint's table of contents.

    Raises:
        ValueError: A field is not of its type or out of range, a file is named that a checkpoint
            cannot have, or tables and files do not fit together.
    """

    format: int
    step: int
    position: Position
    ranks: int
    seed: int
    versions: dict[str, str]
    tables: dict[str, TableEntry]
    files: dict[str, FileEntry]

    def __post_init__(self) -> None:
        want(is_count(self.step, 10**10), "a step", self.step)
        want(all(is_count(part, 2**63) for part in self.position), "a position", self.position)
        want(is_count(self.ranks, 2**31) and self.ranks > 0, "a number of ranks", self.ranks)
        want(is_count(self.seed, 2**64), "a seed", self.seed)
        want(
            isinstance(self.versions, dict)
            and all(map(is_text, [*self.versions, *self.versions.values()])),
            "versions by name",
            self.versions,
        )
        for name in self.files:
            plain = _FILE_NAME.fullmatch(name) and name not in (".", "..", MANIFEST)
            want(bool(plain), "a file in the checkpoint's folder, none outside", name)
        want(DENSE in self.files, f"a file {DENSE}", sorted(self.files))
        self._check_tables()

    def _check_tables(self) -> None:
        owners: dict[str, str] = {DENSE: "the dense weights"}
        for name, entry in self.tables.items():
            legal = is_text(name) and 0 < len(name.encode()) <= 128 and "\0" not in name
            want(legal, "a table's name", name)
            for file in entry.files:
                want(file in self.files, f"a listed file for table {name!r}", file)
                want(file not in owners, f"a file of table {name!r} alone", file)
                owners[file] = name
            held = sum(self.files[file].size for file in entry.files)
            want(
                entry.rows * entry.row_bytes <= held,
                f"{entry.row_bytes} bytes for each of {entry.rows} rows of table {name!r}",
                held,
            )

    def write(self, folder: Path) -> None:
        """Writes and syncs manifest.json."""
        path = folder / MANIFEST
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1), encoding="utf-8")
        sync(path)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Reads a manifest and checks its form.

        Raises:
            CheckpointError: It is missing, malformed or of another format.
        """
        path = folder / MANIFEST
        try:
            raw = _read_json(path)
            if raw["format"] != FORMAT:
                found = repr(raw["format"])[:100]
                raise CheckpointError(
                    f"{folder} has format {found}; this version reads format {FORMAT}."
                )
            raw["position"] = Position(*raw["position"])
            raw["tables"] = {name: TableEntry(**entry) for name, entry in raw["tables"].items()}
            raw["files"] = {name: FileEntry(**entry) for name, entry in raw["files"].items()}
            return cls(**raw)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error!r}") from error

    def check_file(
        self, folder: Path, name: str, on_read: Callable[[int], None] | None = None
    ) -> None:
        """Compares a file with its size and checksum.

        Args:
            folder: The checkpoint's.
            name: One of `files`.
            on_read: Called with the number of bytes after each piece that was read.

        Raises:
            CheckpointError: It is missing or damaged.
        """
        path, wanted = folder / name, self.files[name]
        try:
            size = path.stat().st_size
            found = FileEntry.of(path, on_read) if size == wanted.size else f"{size} bytes"
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        if found != wanted:
            raise CheckpointError(f"{path} is damaged: wanted {wanted}. Received: {found}")

    def check_files(self, folder: Path) -> None:
        """Compares every file with its size and checksum.

        Raises:
            CheckpointError: One is missing or damaged.
        """
        for name in self.files:
            self.check_file(folder, name)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():  # opening a pipe would never end
        raise FileNotFoundError(f"there is no file {path.name}")
    with path.open("rb") as file:
        text = file.read(_MAX_MANIFEST_BYTES + 1)
    want(len(text) <= _MAX_MANIFEST_BYTES, f"at most {_MAX_MANIFEST_BYTES} bytes", "more")
    return parse_object(text)


def sync(path: Path) -> None:
    """Forces a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_of(directory: Path, step: int) -> Path:
    """Returns the folder of the checkpoint of a step."""
    return directory / f"step-{step:010d}"


def steps(directory: str | os.PathLike[str]) -> list[int]:
    """Returns the steps of which a directory has a checkpoint, oldest first.

    Example:

    >>> steps("/nowhere")
    []
    """
    path = Path(directory)
    if not path.is_dir():
        return []
    matches = (_STEP.fullmatch(entry.name) for entry in path.iterdir() if entry.is_dir())
    return sorted(int(match.group(1)) for match in matches if match)


def locate(directory: Path, step: int | None = None) -> Path:
    """Returns the folder of a checkpoint.

    Args:
        directory: Where checkpoints are kept, or the folder of one.
        step: Which one. Defaults to the newest.

    Raises:
        CheckpointError: There is none, or none of that step.

    Example:

    ```python
    Manifest.read(locate(Path("checkpoints"))).tables
    ```
    """
    if (directory / MANIFEST).exists() and step is None:
        return directory
    known = steps(directory)
    if not known:
        raise CheckpointError(f"{directory} has no checkpoint")
    if step not in (None, *known):
        raise CheckpointError(
            f"{directory} has checkpoints of the steps {known}. Received: step={step}"
        )
    return folder_of(directory, known[-1] if step is None else step)
