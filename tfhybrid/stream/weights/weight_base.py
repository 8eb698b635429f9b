"""A base: the weights of a target model at one version, and which rows are in them.

base-NUMBER/     of the first record of the journal that is not in it; appears whole
    base.json        version, rows of each queue that are in the weights, files and checksums
    TABLE-PART.safetensors
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tfhybrid.checkpoint import storage
from tfhybrid.core import native
from tfhybrid.core.frozen_table import TableFile
from tfhybrid.errors import CorruptFileError
from tfhybrid.stream.queues.applied_ranges import Range
from tfhybrid.stream.queues.queue import Position

_MANIFEST = "base.json"


@dataclasses.dataclass(frozen=True)
class Base:
    """What a base says beside the weights.

    Args:
        spec: `ModelSpec.to_json`.
        version: Updates that are in the weights.
        journal: Offset of the first record of the journal that is not.
        epochs: Of the provider of each queue.
        done: Rows of each queue that are in the weights: frontier, and ranges behind it.
        optimizer_starts: The version at which each table's optimizer began; 0 if it is not here.
        history: By which two histories of weights of one version are told apart.
        event_time: The latest that came with an update, if any did.
    """

    spec: str
    version: int
    journal: int
    epochs: Mapping[str, int]
    done: Mapping[str, tuple[Position, Sequence[Range]]]
    optimizer_starts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    history: str = ""
    event_time: int | None = None


def write(
    folder: Path, base: Base, write_tables: Callable[[Path], list[tuple[str, str, TableFile]]]
) -> Path:
    """Writes a base; it appears whole or not at all.

    Args:
        folder: Of the target model.
        base: What it says.
        write_tables: Writes the tables into a folder; as of `WeightStore.write`.

    Returns:
        Its folder.
    """
    place = folder / f"base-{base.journal:020d}"
    if not place.exists():
        with storage.appearing(place) as unfinished:
            files = [(table, file, its.crc32c) for table, file, its in write_tables(unfinished)]
            content = json.dumps({**dataclasses.asdict(base), "files": files})
            crc = native.crc32c(content.encode())
            (unfinished / _MANIFEST).write_text(f"{crc:08x}\n{content}")
    return place


def newest(folder: Path) -> tuple[Base, list[tuple[str, Path]]] | None:
    """Returns the newest base, and table and path of each of its files; or `None`.

    Raises:
        CorruptFileError: It is damaged.
    """
    places = sorted(folder.glob("base-*"))
    return read(places[-1]) if places else None


def read(place: Path) -> tuple[Base, list[tuple[str, Path]]]:
    """Returns a base, and table and path of each of its files.

    Args:
        place: What `write` returned.

    Raises:
        CorruptFileError: It is damaged.
        OSError: A file cannot be read.
    """
    crc, _, content = (place / _MANIFEST).read_text().partition("\n")
    if crc != f"{native.crc32c(content.encode()):08x}":
        raise CorruptFileError(f"{place / _MANIFEST} is damaged: its checksum is not {crc[:8]}")
    found = json.loads(content)
    files = []
    for table, name, wanted in found.pop("files"):
        if native.crc32c(storage.read(place / name)) != wanted:
            raise CorruptFileError(f"{place / name} is damaged: its checksum is not {wanted:08x}")
        files.append((table, place / name))
    found["done"] = {
        queue: (Position(*frontier), [(Position(*b), Position(*e)) for b, e in ranges])
        for queue, (frontier, ranges) in found["done"].items()
    }
    return Base(**found), files


def remove_older(folder: Path, kept: Path) -> None:
    """Removes the bases before one."""
    for place in folder.glob("base-*"):
        if place.name < kept.name:
            shutil.rmtree(place)
