"""What a checkpoint consists of, and how its files are told from damaged ones.

    DIRECTORY/step-0000001200/
        manifest.json              this module; names every other file with its size and checksum
        dense.safetensors          weights, optimizer, and what differs from rank to rank
        TABLE-00000.safetensors    keys [n], embeddings [n, dim], states [n, slots, dim]
        TABLE-00001.safetensors    ... the next block of rows

A checkpoint is written under a name that starts with a dot and renamed when it is complete and
synced, so a folder named `step-*` is complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfhybrid.errors import CheckpointError
from tfhybrid.store import native

FORMAT = 1
MANIFEST = "manifest.json"
_STEP = re.compile(r"step-(\d{10})")


class Position(NamedTuple):
    """Where training goes on: the epoch, and the steps of it that are done."""

    epoch: int
    step: int


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """A file of a checkpoint: bytes and CRC-32C of its content."""

    size: int
    crc32c: int

    @classmethod
    def of(cls, path: Path) -> FileEntry:
        """Reads a file and describes it."""
        size = path.stat().st_size
        content = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
        return cls(size, native.crc32c(content))


@dataclasses.dataclass(frozen=True)
class TableEntry:
    """A table of a checkpoint."""

    dim: int
    rows: int
    version: int
    initializer: list[float]
    optimizer: list[float]
    state_slots: int
    digest: int
    files: list[str]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A checkpoint's table of contents."""

    format: int
    step: int
    position: Position
    ranks: int
    seed: int
    versions: dict[str, str]
    tables: dict[str, TableEntry]
    files: dict[str, FileEntry]

    def write(self, folder: Path) -> None:
        """Writes and syncs manifest.json."""
        path = folder / MANIFEST
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1))
        sync(path)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Reads a manifest and checks its form.

        Raises:
            CheckpointError: It is missing, malformed or of another format.
        """
        try:
            raw: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
            if raw["format"] != FORMAT:
                raise CheckpointError(
                    f"{folder} has format {raw['format']}; this version reads format {FORMAT}."
                )
            raw["position"] = Position(*raw["position"])
            raw["tables"] = {name: TableEntry(**entry) for name, entry in raw["tables"].items()}
            raw["files"] = {name: FileEntry(**entry) for name, entry in raw["files"].items()}
            manifest = cls(**raw)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{folder / MANIFEST} cannot be read: {error!r}") from error
        for name in manifest.files:
            if Path(name).name != name:
                raise CheckpointError(f"{folder / MANIFEST} names a file outside: {name!r}")
        return manifest

    def check_files(self, folder: Path) -> None:
        """Compares every file with its size and checksum.

        Raises:
            CheckpointError: One is missing or damaged.
        """
        for name, wanted in self.files.items():
            try:
                found = FileEntry.of(folder / name)
            except OSError as error:
                raise CheckpointError(f"{folder / name} cannot be read: {error}") from error
            if found != wanted:
                raise CheckpointError(
                    f"{folder / name} is damaged: wanted {wanted}. Received: {found}"
                )


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
