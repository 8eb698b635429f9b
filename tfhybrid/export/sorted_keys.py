"""Keys of a table in ascending order, sorted on disk so that only a few are in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from tfhybrid.errors import ExportError
from tfhybrid.export.copied_table import CopiedTable

# `tf.searchsorted` counts in 32 bits on the CPU, whatever its `out_type`.
_MAX_ROWS = 2**31 - 1

# Maximum number of keys in memory, while runs are sorted and while they are merged.
_RUN_KEYS = 2 << 20

_KEY_BYTES = 8


class SortedKeys:
    """Context with the keys of all rows to export, sorted on disk.

    The constructor sorts runs of keys in memory and writes them to a file without a name. `blocks`
    merges them. The file is gone when the context ends.

    Args:
        table: Table to export. No step may run while its keys are read.
        min_norm: Minimum Euclidean norm of an embedding; rows below it are left out.
        directory: Directory for the file, on a disk with space for 8 bytes per key.

    Attributes:
        count: Number of keys.

    Raises:
        ExportError: The table has more rows than `tf.searchsorted` can count.
        OSError: The disk is full.

    Example:

    ```python
    with SortedKeys(table, min_norm=0.0, directory=Path("exported")) as sorted_keys:
        for keys in sorted_keys.blocks(65536):
            vectors = table.lookup(keys)
    ```
    """

    def __init__(self, table: CopiedTable, *, min_norm: float, directory: Path) -> None:
        # A file without a name is gone with its process, even if that is killed.
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - __exit__ closes it
        self._lengths: list[int] = []
        for run in _regrouped(_kept_keys(table, min_norm), _RUN_KEYS):
            run.sort()
            self._file.write(run.data)
            self._lengths.append(len(run))
        self.count = sum(self._lengths)
        if self.count > _MAX_ROWS:
            raise ExportError(
                f"A table of an exported model may have at most {_MAX_ROWS:,} rows; a larger "
                f"min_norm leaves more of them out. Received: {self.count:,} in '{table.name}'"
            )

    def __enter__(self) -> SortedKeys:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def blocks(self, block_keys: int) -> Iterator[np.ndarray]:
        """Yields all keys in ascending order, int64.

        Args:
            block_keys: Number of keys in a block; the last block may have fewer.

        Raises:
            OSError: The file cannot be read.
        """
        return _regrouped(self._merged(), block_keys)

    def _merged(self) -> Iterator[np.ndarray]:
        part = max(1, _RUN_KEYS // max(1, len(self._lengths)))
        starts = np.cumsum([0, *self._lengths])
        read, ends = starts[:-1].tolist(), starts[1:].tolist()
        parts = [np.empty(0, np.int64) for _ in read]
        while True:
            for run, keys in enumerate(parts):
                if len(keys) == 0:
                    count = min(part, ends[run] - read[run])
                    parts[run] = self._read(read[run], count)
                    read[run] += count
            # Up to the smallest last key of the unfinished runs, every key is in memory.
            bounds = [keys[-1] for run, keys in enumerate(parts) if read[run] < ends[run]]
            counts = [
                np.searchsorted(keys, min(bounds), side="right") if bounds else len(keys)
                for keys in parts
            ]
            taken = np.concatenate(
                [keys[:count] for keys, count in zip(parts, counts, strict=True)]
                or [np.empty(0, np.int64)]
            )
            if len(taken) == 0:
                return
            taken.sort()
            yield taken
            parts = [keys[count:] for keys, count in zip(parts, counts, strict=True)]

    def _read(self, first: int, count: int) -> np.ndarray:
        self._file.seek(first * _KEY_BYTES)
        return np.frombuffer(self._file.read(count * _KEY_BYTES), np.int64)


def _kept_keys(table: CopiedTable, min_norm: float) -> Iterator[np.ndarray]:
    for block in table.blocks():
        if min_norm > 0:
            # A row with a NaN is kept: the exported model must predict as the trained one does.
            yield block.keys[~(np.linalg.norm(block.embeddings, axis=1) < min_norm)]
        else:
            yield block.keys


def _regrouped(arrays: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Yields the same keys in arrays of `size`, copied; the last one may be shorter."""
    group, filled = np.empty(size, np.int64), 0
    for array in arrays:
        while len(array):
            taken = array[: size - filled]
            group[filled : filled + len(taken)] = taken
            filled += len(taken)
            array = array[len(taken) :]
            if filled == size:
                yield group
                group, filled = np.empty(size, np.int64), 0
    if filled:
        yield group[:filled]
