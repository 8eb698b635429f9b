"""Base: the weights of a target model at one version, and the rows that they contain.

base-NUMBER/     NUMBER is the offset of the first journal record not in it; appears complete
    base.json        version, rows of each queue that the weights contain, files and checksums
    TABLE-PART.safetensors
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tfhybrid.checkpoint import storage
from tfhybrid.core.frozen_table import TableFile
from tfhybrid.core.whole_file import sync
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights import checked_json
from tfhybrid.stream.weights.lease import Range

_MANIFEST = "base.json"


@dataclasses.dataclass(frozen=True)
class WeightBase:
    """Metadata of a base: a complete copy of a target model on disk.

    Args:
        spec: Specification of the model, as JSON of `ModelSpec.to_json`.
        version: Number of updates in the weights.
        journal: Offset of the first journal record that the weights do not contain.
        epochs: Term of each queue's provider, by queue.
        done: Rows that the weights contain, by queue: the frontier, and the ranges behind it.
        optimizer_starts: Version at which each table's optimizer started, by table; 0 for tables
            without an entry. Default: no entries.
        history: Hash of all updates so far; tells apart two histories with the same version.
            Default: empty, for bases of older versions of tfhybrid.
        event_time: Latest event time of all updates, in seconds since 1970. Default: `None`, no
            update had one.
        rows: Number of rows of the updates in the weights, by queue. Default: `None`, unknown, for
            bases of older versions of tfhybrid.
    """

    spec: str
    version: int
    journal: int
    epochs: Mapping[str, int]
    done: Mapping[str, tuple[QueuePosition, Sequence[Range]]]
    optimizer_starts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    history: str = ""
    event_time: int | None = None
    rows: Mapping[str, int] | None = None

    def offsets(self) -> dict[str, int]:
        """Returns the record offset before which all rows are in the weights, by queue name."""
        return {queue: frontier.offset for queue, (frontier, _) in self.done.items()}


def write(
    folder: Path, base: WeightBase, write_tables: Callable[[Path], list[tuple[str, str, TableFile]]]
) -> Path:
    """Writes a base: a full copy of a target model's weights at one version.

    It appears complete or not at all. Does nothing if the base exists.

    Args:
        folder: Folder of the target model.
        base: Metadata of the base.
        write_tables: Function that writes the tables into the folder that it gets, which is still
            temporary, and returns table, file name and description of each file.

    Returns:
        The folder of the base.

    Raises:
        OSError: A file cannot be written. Errors of `write_tables` propagate, too.
    """
    path = folder / name_of(base.journal)
    if not path.exists():
        with storage.appearing(path) as unfinished:
            files = [(table, name, file.crc32c) for table, name, file in write_tables(unfinished)]
            fields = {**dataclasses.asdict(base), "files": files}
            if base.rows is None:
                del fields["rows"]
            content, _ = checked_json.encoded(fields)
            (unfinished / _MANIFEST).write_bytes(content)
    return path


def name_of(journal: int) -> str:
    """Returns the name of a base's folder.

    Args:
        journal: Offset of the first journal record that the base does not contain.
    """
    return f"base-{journal:020d}"


def journal_of(base: Path) -> int:
    """Returns the offset of the first journal record that a base does not contain, from its name.

    Args:
        base: Folder of the base.
    """
    return int(base.name.removeprefix("base-"))


def newest_first(folder: Path) -> list[Path]:
    """Returns the folders of the bases of a target model, from the newest to the oldest.

    Args:
        folder: Folder of the target model.
    """
    return sorted(folder.glob("base-*"), reverse=True)


def read(folder: Path) -> tuple[WeightBase, list[tuple[str, Path]]]:
    """Reads the metadata of a base and checks the checksums of its files.

    Args:
        folder: Folder of the base, as returned by `write`.

    Returns:
        The metadata, and the table and path of each file.

    Raises:
        CorruptFileError: The base is damaged.
        OSError: A file cannot be read.
    """
    base, listed = _described(folder)
    files = []
    for table, name, checksum in listed:
        checked_json.check(folder / name, checksum)
        files.append((table, folder / name))
    return base, files


def read_metadata(folder: Path) -> WeightBase:
    """Reads the metadata of a base, without a look at its other files.

    Args:
        folder: Folder of the base.

    Raises:
        CorruptFileError: The metadata are damaged.
        OSError: The file cannot be read.
    """
    return _described(folder)[0]


def _described(folder: Path) -> tuple[WeightBase, list[tuple[str, str, int]]]:
    fields, _ = checked_json.read(folder / _MANIFEST)
    files = fields.pop("files")
    fields["done"] = {
        queue: (
            QueuePosition(*frontier),
            [(QueuePosition(*b), QueuePosition(*e)) for b, e in ranges],
        )
        for queue, (frontier, ranges) in fields["done"].items()
    }
    return WeightBase(**fields), files


def move_aside(base: Path, reason: str = "damaged") -> Path:
    """Renames a base, so that it is none any more; replaces what was moved there before.

    Args:
        base: Folder of the base.
        reason: Word that the new name begins with. Default `"damaged"`.

    Returns:
        The new path.

    Raises:
        OSError: The base cannot be renamed.
    """
    moved = base.with_name(f"{reason}-{base.name}")
    if moved.exists():
        shutil.rmtree(moved)
    base.rename(moved)
    sync(moved.parent)
    return moved


def remove_older(folder: Path, kept: Path) -> None:
    """Removes all older bases of a target model.

    Args:
        folder: Folder of the target model.
        kept: Folder of the oldest base to keep.

    Raises:
        OSError: A file cannot be removed.
    """
    for base in folder.glob("base-*"):
        if base.name < kept.name:
            shutil.rmtree(base)
