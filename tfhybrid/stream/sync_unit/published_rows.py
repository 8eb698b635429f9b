"""Files of a publication: embeddings of frozen tables, without optimizer states."""

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
from tfhybrid.stream.sync_unit.snapshot import WeightSnapshot
from tfhybrid.stream.weights.finite_rows import first_not_finite
from tfhybrid.stream.weights.publication import PublishedFile


class NotFiniteError(PublicationError):
    """Error: a row to publish has a value that is not finite."""


class WrittenRows(NamedTuple):
    """Files of a publication, and the numbers of rows, removed keys and bytes in these files."""

    files: list[PublishedFile]
    rows: int
    removed: int
    bytes: int


def write(snapshot: WeightSnapshot, folder: Location) -> WrittenRows:
    """Writes the rows and removed keys of a snapshot into a folder.

    Args:
        snapshot: Weights to write; the snapshot must stay frozen meanwhile.
        folder: Unfinished folder of the publication. On an error, files may remain in it.

    Returns:
        The files, and the numbers of rows, removed keys and bytes in them.

    Raises:
        NotFiniteError: A value is not finite; the message names table and key.
        OutOfSpaceError: The disk is full.
        StoreError: A file cannot be written.
        OSError: The folder cannot be written, or a file cannot be uploaded.
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
    """Checks the embeddings of a file and removes the states; returns the file's checksum."""
    arrays = table_file.read_arrays(path)
    embeddings = arrays["embeddings"]
    if bad := first_not_finite(arrays["keys"], embeddings):
        key, values = bad
        raise NotFiniteError(
            f"Weights must be finite to be published. Received: key {key} of table '{table}' has "
            f"{values}"
        )
    if not arrays["states"].size:
        return crc
    content = safetensors.numpy.save({"keys": arrays["keys"], "embeddings": embeddings})
    path.unlink()  # not overwritten: `arrays` still maps the old content
    path.write_bytes(content)
    return native.crc32c(content)
