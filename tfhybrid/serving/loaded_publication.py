"""Files of a publication, read and checked as a whole before a row of them is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tfhybrid.checkpoint.storage import Location
from tfhybrid.errors import CorruptFileError
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights.model_spec import ModelSpec
from tfhybrid.stream.weights.publication import Publication, PublishedFile

# Table, kind and arrays of each file of a publication.
Loaded = Sequence[tuple[str, str, Mapping[str, np.ndarray]]]


def load(folder: Location, publication: Publication, spec: ModelSpec) -> Loaded:
    """Reads the files of a publication, and checks that all of them can be served.

    Args:
        folder: Folder of the target model's publications.
        publication: Metadata of the publication.
        spec: Specification of the model, as the publication names it.

    Returns:
        Table, kind and arrays of each file.

    Raises:
        CorruptFileError: A file is missing, damaged, or not of the model; a value is not finite; or
            the publication has another number of rows than it says.
        CheckpointError: A file is no file of arrays.
    """
    own = files.folder_of(folder, publication.number)
    loaded = []
    for file in publication.files:
        arrays = files.read_file(own, file)
        _check_arrays(own, file, arrays, spec)
        loaded.append((file.table, file.kind, arrays))
    received = {
        kind: sum(len(arrays["keys"]) for _, of, arrays in loaded if of == kind)
        for kind in ("rows", "removed")
    }
    expected = {"rows": publication.rows, "removed": publication.removed}
    if received != expected:
        raise CorruptFileError(f"{own} must have {expected}. Received: {received}")
    return loaded


def _check_arrays(
    folder: Location, file: PublishedFile, arrays: Mapping[str, np.ndarray], spec: ModelSpec
) -> None:
    table = spec.all_tables.get(file.table)
    if table is None or file.kind not in ("rows", "removed"):
        raise CorruptFileError(
            f"{folder} must have rows or removed keys of the tables {sorted(spec.all_tables)}. "
            f"Received: {file.kind!r} of {file.table!r}"
        )
    received = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    count = arrays["keys"].shape[:1] if "keys" in arrays else ()
    expected = {"keys": ("int64", count)}
    if file.kind == "rows":
        expected["embeddings"] = ("float32", (*count, table.dim))
    if len(count) != 1 or any(received.get(name) != each for name, each in expected.items()):
        raise CorruptFileError(
            f"{folder / file.name} must have int64 keys [n] and, of rows, float32 embeddings "
            f"[n, {table.dim}]. Received: {received}"
        )
    if file.kind == "rows" and not np.isfinite(arrays["embeddings"]).all():
        raise CorruptFileError(f"The rows of {folder / file.name} must be finite. Received: others")
