"""Reader of a checkpoint's safetensors files, which it does not trust.

    u64      bytes of the header, little-endian
    header   JSON: {"keys": {"dtype": "I64", "shape": [n], "data_offsets": [begin, end]}, ...}
    data     the arrays; offsets are relative to its start

Lengths, types, shapes and offsets are checked against each other and against the file's size before
anything else. Nothing is copied: an array is a read-only view of the mapped file. Format:
https://github.com/huggingface/safetensors#format. This module needs neither TensorFlow nor Horovod.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.untrusted_json import are_counts, is_text, parse_object, want
from tfhybrid.core import native
from tfhybrid.errors import CheckpointError

_MAX_HEADER_BYTES = 16 << 20  # enough for a hundred thousand arrays
_MAX_AXES = 32  # NumPy's limit
# bfloat16 is read as its bits: NumPy has no such type.
_DTYPES = {
    **{"BOOL": "?", "I8": "i1", "U8": "u1", "I16": "<i2", "U16": "<u2", "F16": "<f2"},
    **{"BF16": "<u2", "I32": "<i4", "U32": "<u4", "F32": "<f4", "C64": "<c8"},
    **{"I64": "<i8", "U64": "<u8", "F64": "<f8"},
}


class StoredRows(NamedTuple):
    """Block of a table's rows."""

    keys: np.ndarray  # int64 [n]
    embeddings: np.ndarray  # float32 [n, dim]
    states: np.ndarray  # float32 [n, slots, dim]
    history: np.ndarray  # uint8 [n, bytes of native.HISTORY], or [n, 0] without a history


@dataclasses.dataclass(frozen=True)
class _Array:
    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def no_history(rows: int) -> np.ndarray:
    """Returns the `StoredRows.history` of rows for which none is stored: uint8 `[rows, 0]`.

    The history of a row is the frequency and last use of its key, by which rows are evicted.

    Args:
        rows: Number of rows.
    """
    return np.empty((rows, 0), np.uint8)


def evicted_file_name(table: str) -> str:
    """Returns the name of the file of a table's evicted keys.

    Example:

    >>> evicted_file_name("item/id")
    'item%2Fid-evicted.safetensors'
    """
    return f"{quote(table, safe='')}-evicted.safetensors"


def file_name(table: str, block: int, owner: int | None = None) -> str:
    """Returns the name of the file of a table's block.

    Args:
        table: Name of the table.
        block: Number of the block among its owner's blocks.
        owner: Number of the host that owns the rows, for a sharded table. Default: none.

    Example:

    >>> file_name("item/id", 2)
    'item%2Fid-00002.safetensors'
    >>> file_name("item/id", 2, owner=1)
    'item%2Fid-host1-00002.safetensors'
    """
    of_owner = "" if owner is None else f"host{owner}-"
    return f"{quote(table, safe='')}-{of_owner}{block:05d}.safetensors"


def read_arrays(path: Location) -> dict[str, np.ndarray]:
    """Maps the arrays of a safetensors file.

    Args:
        path: Path of the file, which must not be truncated while an array of it is in use.

    Returns:
        Read-only arrays by name; bfloat16 as uint16.

    Raises:
        CheckpointError: The file is missing, truncated, or inconsistent.
    """
    try:
        file = storage.read(path)
        start, arrays = _read_header(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    data = file[start:]
    return {
        name: data[array.begin : array.end].view(array.dtype).reshape(array.shape)
        for name, array in arrays.items()
    }


def read_names(path: Location) -> dict[str, str]:
    """Returns the names that the model gives to the arrays of a file, by array name.

    Args:
        path: Path of the file.

    Returns:
        The file's metadata, empty if it has none.

    Raises:
        CheckpointError: The file is missing or truncated, or a name is not text.
    """
    try:
        _, header = _parse_header(storage.read(path))
        names = header.get("__metadata__", {})
        legal = isinstance(names, dict) and all(map(is_text, [*names, *names.values()]))
        want(legal, "names of arrays", names)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return names


def read_rows(
    path: Location, dim: int, state_shape: tuple[int, int], *, history: bool
) -> StoredRows:
    """Maps the rows of a file.

    Args:
        path: Path of the file.
        dim: Number of columns that the embeddings must have.
        state_shape: Shape that a row's state must have: `(slots, dim)`.
        history: Whether rows must have a history.

    Returns:
        The rows, as read-only views of the mapped file.

    Raises:
        CheckpointError: The file is missing or damaged, or has other arrays or shapes.
    """
    arrays = read_arrays(path)
    received = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    rows = arrays["keys"].shape[0] if "keys" in arrays and arrays["keys"].ndim else 0
    expected = {
        "keys": ("int64", (rows,)),
        "embeddings": ("float32", (rows, dim)),
        "states": ("float32", (rows, *state_shape)),
    }
    if history:
        expected["history"] = ("uint8", (rows, native.HISTORY.itemsize))
    if received != expected:
        raise CheckpointError(
            f"{path} must have the arrays {expected}. Received: {str(received)[:300]}"
        )
    return StoredRows(**({"history": no_history(rows)} | arrays))


def read_evicted(path: Location) -> np.ndarray:
    """Maps a file of evicted keys, int64 `[n]`.

    Args:
        path: Path of the file.

    Returns:
        The keys, as a read-only view of the mapped file.

    Raises:
        CheckpointError: The file is missing or damaged, or has other arrays.
    """
    arrays = read_arrays(path)
    received = {name: (str(array.dtype), array.ndim) for name, array in arrays.items()}
    if received != {"keys": ("int64", 1)}:
        raise CheckpointError(f"{path} must have only int64 keys. Received: {str(received)[:300]}")
    return arrays["keys"]


def arrays_of(block: StoredRows) -> dict[str, np.ndarray]:
    """Returns the arrays to save for a block of rows, by name; no history if it is empty.

    Args:
        block: Rows, with or without a history (frequency and last use of each key).
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in block._asdict().items()}
    if not arrays["history"].shape[1]:
        del arrays["history"]
    return arrays


def parts(block: StoredRows, rows: int) -> Iterator[StoredRows]:
    """Cuts a block into parts of at most `rows` rows, without copying.

    Args:
        block: Block of rows.
        rows: Maximum number of rows of a part.

    Yields:
        The parts in order, as views of the block.
    """
    for first in range(0, len(block.keys), rows):
        yield StoredRows(*(array[first : first + rows] for array in block))


def sorted_keys(blocks: Sequence[StoredRows], what: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys of all blocks in ascending order, and their indices in the blocks.

    Args:
        blocks: Blocks; the indices count rows over all of them.
        what: Description of the blocks, for the error.

    Raises:
        CheckpointError: A key occurs twice.
    """
    keys = np.concatenate([np.empty(0, np.int64), *(block.keys for block in blocks)])
    indices = np.argsort(keys, kind="stable")
    keys = keys[indices]
    repeated = keys[1:][keys[1:] == keys[:-1]]
    if len(repeated):
        raise CheckpointError(
            f"{what} has duplicate keys among {len(keys)}: {np.unique(repeated)[:5]}"
        )
    return keys, indices


def digest(block: StoredRows) -> int:
    """Returns the hash of a block of rows. Hashes of blocks add up, modulo 2^64, to the table's.

    Args:
        block: Rows, with or without a history.
    """
    return native.rows_digest(*block)


def _read_header(file: np.ndarray) -> tuple[int, dict[str, _Array]]:
    """Returns the offset of the data in a file, and the arrays by name.

    Raises:
        ValueError: The header is malformed, or does not fit the file.
    """
    start, header = _parse_header(file)
    header.pop("__metadata__", None)
    arrays = {name: _array(name, entry) for name, entry in header.items()}
    _check_offsets(arrays, len(file) - start)
    return start, arrays


def _parse_header(file: np.ndarray) -> tuple[int, dict[str, Any]]:
    """Returns the offset of the data in a file, and the parsed header."""
    want(len(file) >= 8, "a file of at least 8 bytes", len(file))
    length = int.from_bytes(file[:8].tobytes(), "little")
    start = 8 + length
    fits = length <= _MAX_HEADER_BYTES and start <= len(file)
    want(fits, f"a header that fits in a file of {len(file)} bytes", f"{length} bytes")
    return start, parse_object(file[8:start].tobytes())


def _array(name: str, entry: Any) -> _Array:
    what = f"array {name[:100]!r} to have"
    names = {"dtype", "shape", "data_offsets"}
    want(isinstance(entry, dict) and set(entry) == names, f"{what} {sorted(names)}", entry)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    want(isinstance(dtype, str) and dtype in _DTYPES, f"{what} a dtype of {[*_DTYPES]}", dtype)
    want(are_counts(shape, 2**63) and len(shape) <= _MAX_AXES, f"{what} a shape", shape)
    want(are_counts(offsets, 2**63) and len(offsets) == 2, f"{what} two offsets", offsets)
    array = _Array(np.dtype(_DTYPES[dtype]), tuple(shape), *offsets)
    # NumPy treats an axis of 0 as 1 here.
    strides = array.dtype.itemsize * math.prod(max(1, length) for length in shape)
    want(strides < 2**63, f"{what} a shape that can be addressed", shape)
    size = array.dtype.itemsize * math.prod(shape)
    want(array.end - array.begin == size, f"{what} {size} bytes of {dtype} {shape}", offsets)
    return array


def _check_offsets(arrays: dict[str, _Array], size: int) -> None:
    """Checks that the arrays fill the data without gaps or overlaps."""
    position = 0
    for name, array in sorted(arrays.items(), key=lambda item: (item[1].begin, item[1].end)):
        want(array.begin == position, f"array {name[:100]!r} at byte {position}", array.begin)
        position = array.end
    want(position == size, f"arrays that fill {size} bytes", position)
