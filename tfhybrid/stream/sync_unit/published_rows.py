"""The files of a publication: embeddings of frozen tables, without optimizer states."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy

from tfhybrid.checkpoint import storage, table_file
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.table_file import evicted_file_name, file_name
from tfhybrid.core import native
from tfhybrid.errors import PublicationError
from tfhybrid.stream.sync_unit.target_model import Snapshot
from tfhybrid.stream.weights.publication import PublishedFile


class NotFiniteError(PublicationError):
    """A row that was to be published has a value that is not finite."""


class WrittenRows(NamedTuple):
    """What was written: the files, how many rows and removed keys they have, and their bytes."""

    files: list[PublishedFile]
    rows: int
    removed: int
    bytes: int


def write(snapshot: Snapshot, folder: Location) -> WrittenRows:
    """Writes the rows of a snapshot.

    Raises:
        NotFiniteError: A value is not finite; the message names table and key.
        OutOfSpaceError: The disk is full.
    """
    files: list[PublishedFile] = []
    rows = removed = size = 0
    for name, frozen in snapshot.frozen.items():
        if frozen.removed:
            keys = np.unique(snapshot.store.removed_keys(name, frozen))
            content = safetensors.numpy.save({"keys": keys})
            file = evicted_file_name(name)
            storage.write(folder / file, content)
            files.append(PublishedFile(name, "removed", file, native.crc32c(content)))
            removed += len(keys)
            size += len(content)
        for part in range(frozen.parts):
            file = file_name(name, part)
            with storage.local_file(folder / file) as path:
                of_part = snapshot.store.write_part(name, part, path)
                crc = _checked(name, path, of_part.crc32c)
                rows += of_part.rows
                size += path.stat().st_size
            files.append(PublishedFile(name, "rows", file, crc))
    return WrittenRows(files, rows, removed, size)


def _checked(table: str, path: Path, crc: int) -> int:
    """Checks the embeddings of a file and drops states from it; returns its checksum."""
    arrays = table_file.read_arrays(path)
    embeddings = arrays["embeddings"]
    finite = np.isfinite(embeddings).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise NotFiniteError(
            f"Published weights are finite. Received: key {int(arrays['keys'][row])} of table "
            f"'{table}' has {embeddings[row]}"
        )
    if not arrays["states"].size:
        return crc
    content = safetensors.numpy.save({"keys": arrays["keys"], "embeddings": embeddings})
    path.unlink()  # what is mapped lives on
    path.write_bytes(content)
    return native.crc32c(content)
