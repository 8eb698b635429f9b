"""Sources of rows for `Table.load`: keys and embeddings that another program wrote.

They are the way from Keras, parameter servers and TFRA to tfhybrid. A source yields rows in blocks.
If the format allows it, only one block is in memory beside the table.
"""

from __future__ import annotations

import contextlib
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfhybrid.core.row_block import RowBlock
from tfhybrid.errors import DataError

BLOCK_ROWS = 1 << 18
# Errors of NumPy and zipfile for a file that is not an archive, is damaged, contains Python
# objects, or declares impossible sizes.
_BAD_ARCHIVE = (ValueError, TypeError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error)


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[Any]:
    """Opens an `.npz` file.

    Raises:
        DataError: The file is damaged, or is not an `.npz` file. Raised by reads in the block, too.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except _BAD_ARCHIVE as error:
        raise DataError(f"{path} is not a file of NumPy arrays: {error}") from error


def array_names(path: Path) -> list[str]:
    """Returns the names of the arrays of an `.npz` file, sorted.

    Args:
        path: Path of the file.

    Raises:
        DataError: The file is damaged, or is not an `.npz` file.
        OSError: The file is missing.
    """
    with _archive(path) as file:
        return sorted(file)


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Opens a Parquet file.

    Raises:
        DataError: The file is damaged, or is not a Parquet file. Raised by reads in the block, too.
    """
    import pyarrow  # takes long to import
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error


def parquet_columns(path: Path) -> list[str]:
    """Returns the names of a Parquet file's columns, in order.

    Args:
        path: Path of the file.

    Raises:
        DataError: The file is damaged, or is not a Parquet file.
        OSError: The file is missing.
    """
    with _parquet(path) as file:
        return list(file.schema_arrow.names)


class ArrayRows:
    """Rows in arrays in memory, such as vectors that were trained elsewhere.

    Args:
        keys: Keys, whole numbers `[n]`.
        embeddings: Embeddings, floats `[n, dim]`.
        states: Optimizer states, floats `[n, vectors, dim]` (`[n, dim]` if a row has one state
            vector). Default: `None`, states start fresh.

    Example:

    ```python
    layer.table.load(tfhybrid.checkpoint.ArrayRows(item_ids, item_vectors))
    ```
    """

    path = "ArrayRows"

    def __init__(
        self,
        keys: npt.ArrayLike,
        embeddings: npt.ArrayLike,
        states: npt.ArrayLike | None = None,
    ) -> None:
        arrays = [keys, embeddings, *([] if states is None else [states])]
        self._arrays = [np.asarray(array) for array in arrays]

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields the rows in blocks.

        Args:
            dim: Length of an embedding of the table.
            state_shape: Shape of a row's optimizer state in the table: vectors, and floats in each.

        Raises:
            DataError: The arrays do not fit the table.
        """
        yield from _cut(self.path, dim, state_shape, *self._arrays)


class NumpyRows:
    """Rows in an `.npz` file of arrays.

    Args:
        path: Path of the file; every host reads it.
        keys: Name of the array of keys, whole numbers `[n]`. Default `"keys"`.
        embeddings: Name of the array of embeddings, floats `[n, dim]`. Default `"embeddings"`.
        states: Name of the array of optimizer states, floats `[n, vectors, dim]` (`[n, dim]` if a
            row has one state vector). Default: `None`, states start fresh.

    Example:

    ```python
    layer.table.load(tfhybrid.checkpoint.NumpyRows("items.npz"))
    ```
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keys: str = "keys",
        embeddings: str = "embeddings",
        states: str | None = None,
    ) -> None:
        self.path = Path(path)
        self._names = [keys, embeddings, *([states] if states else [])]

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields the rows in blocks.

        Args:
            dim: Length of an embedding of the table.
            state_shape: Shape of a row's optimizer state in the table: vectors, and floats in each.

        Raises:
            DataError: The file is damaged, lacks an array, or does not fit the table.
            OSError: The file is missing.
        """
        with _archive(self.path) as file:
            names = sorted(file)
            arrays = [file[name] for name in self._names if name in names]
        if len(arrays) < len(self._names):
            raise DataError(f"{self.path} needs the arrays {self._names}. Received: {names}")
        yield from _cut(self.path, dim, state_shape, *arrays)


class ParquetRows:
    """Rows in a Parquet file with one row per key.

    Args:
        path: Path of the file; every host reads it.
        key: Name of the column of keys, of an integer type. Default `"key"`.
        embedding: Name of the column of embeddings, lists of `dim` floats. Default `"embedding"`.
        state: Name of the column of optimizer states: lists of floats, the row's state vectors of
            `dim` floats one after the other (with RowAdagrad, one float). Default: `None`, states
            start fresh.

    Example:

    ```python
    layer.table.load(tfhybrid.checkpoint.ParquetRows("items.parquet", key="item_id"))
    ```
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: str = "key",
        embedding: str = "embedding",
        state: str | None = None,
    ) -> None:
        self.path = Path(path)
        self._columns = [key, embedding, *([state] if state else [])]

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields the rows in blocks.

        Args:
            dim: Length of an embedding of the table.
            state_shape: Shape of a row's optimizer state in the table: vectors, and floats in each.

        Raises:
            DataError: The file is damaged, lacks a column, or does not fit the table.
            OSError: The file is missing.
        """
        with _parquet(self.path) as file:
            missing = set(self._columns) - set(file.schema_arrow.names)
            if missing:
                raise DataError(
                    f"{self.path} needs the columns {self._columns}. "
                    f"Received: {file.schema_arrow.names}"
                )
            for batch in file.iter_batches(BLOCK_ROWS, columns=self._columns):
                keys = self._plain(batch, self._columns[0]).to_numpy(zero_copy_only=False)
                lists = zip(self._columns[1:], [(dim,), state_shape], strict=False)
                arrays = [self._lists(batch, name, shape) for name, shape in lists]
                yield from _cut(self.path, dim, state_shape, keys, *arrays)

    def _plain(self, batch: Any, name: str) -> Any:
        column = batch.column(name)
        if column.null_count:
            raise DataError(
                f"{self.path} has rows without a value in column '{name}': remove them."
            )
        return column

    def _lists(self, batch: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Returns a column of lists as `[n, *shape]`."""
        import pyarrow

        column, length = self._plain(batch, name), math.prod(shape)
        is_list = pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(
            column.type
        )
        lengths = column.value_lengths() if is_list else None
        if (
            lengths is None
            or pyarrow.compute.any(pyarrow.compute.not_equal(lengths, length)).as_py()
        ):
            raise DataError(
                f"{self.path} needs {length} floats in each list of column '{name}'. "
                f"Received: {column.type}"
            )
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), *shape)


class VariableRows:
    """Rows of a variable `[vocabulary, dim]` in a TensorFlow checkpoint; a row's number is its key.

    Args:
        checkpoint: Prefix or directory of the checkpoint, as for `tf.train.load_checkpoint`.
        variable: Name of the variable, with or without `/.ATTRIBUTES/VARIABLE_VALUE`
            (`tf.train.list_variables` lists the names).
        states: Names of the optimizer's variables for it, in the order of the table's optimizer:
            Adagrad `(accumulator,)`, Adam `(momentum, velocity)`. Default: `None`, states start
            fresh.
        first_key: Key of row 0. Default 0.

    Example:

    ```python
    layer.table.load(
        tfhybrid.checkpoint.VariableRows("keras_job/ckpt-7", "model/item/embeddings")
    )
    ```
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str],
        variable: str,
        *,
        states: Sequence[str] | None = None,
        first_key: int = 0,
    ) -> None:
        self.path = Path(checkpoint)
        self._names = [variable, *(states or ())]
        self._first_key = first_key

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields the rows in blocks.

        Args:
            dim: Length of an embedding of the table.
            state_shape: Shape of a row's optimizer state in the table: vectors, and floats in each.

        Raises:
            DataError: There is no checkpoint, it lacks a variable, or it does not fit the table.
            tf.errors.OpError: The values of a variable are damaged.
            ValueError: The state variables have different shapes.
        """
        import tensorflow as tf

        try:
            reader = tf.train.load_checkpoint(str(self.path))
        except (tf.errors.OpError, ValueError) as error:
            raise DataError(f"{self.path} is not a TensorFlow checkpoint: {error}") from error
        names = reader.get_variable_to_shape_map()
        arrays = []
        for name in self._names:
            full_name = name if name in names else f"{name}/.ATTRIBUTES/VARIABLE_VALUE"
            if full_name not in names:
                raise DataError(
                    f"{self.path} has no variable of that name. Received: {name!r}; it has "
                    f"{sorted(names)}"
                )
            arrays.append(reader.get_tensor(full_name))
        embeddings, *states = arrays
        keys = np.arange(len(embeddings), dtype=np.int64) + self._first_key
        if not states:
            yield from _cut(self.path, dim, state_shape, keys, embeddings)
        else:
            yield from _cut(self.path, dim, state_shape, keys, embeddings, np.stack(states, axis=1))


class TfraRows:
    """Rows in the files of TFRA's `Variable.save_to_file_system`, `NAME-keys` and `NAME-values`.

    Args:
        directory: Directory of the files; every host reads them.
        name: Name of the files without `-keys` and `-values`.

    Example:

    ```python
    layer.table.load(tfhybrid.checkpoint.TfraRows("saved", "item_mht_1of1_rank0_size1"))
    ```
    """

    def __init__(self, directory: str | os.PathLike[str], name: str) -> None:
        self.path = Path(directory) / name

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields the rows in blocks. Optimizer states start fresh.

        Args:
            dim: Length of an embedding of the table.
            state_shape: Shape of a row's optimizer state in the table; not used.

        Raises:
            DataError: A file is truncated, or does not fit the table.
            OSError: A file is missing.
        """
        keys = _mapped(self.path.with_name(f"{self.path.name}-keys"), "<i8")
        values = _mapped(self.path.with_name(f"{self.path.name}-values"), "<f4")
        if len(values) != len(keys) * dim:
            raise DataError(
                f"{self.path} needs {dim} floats for each of its {len(keys)} keys. "
                f"Received: {len(values)} floats"
            )
        yield from _cut(self.path, dim, state_shape, keys, values.reshape(len(keys), dim))


def _mapped(path: Path, dtype: str) -> np.ndarray:
    size = path.stat().st_size
    if size % np.dtype(dtype).itemsize:
        raise DataError(f"{path} is truncated. Received: {size} bytes")
    return np.memmap(path, dtype, "r") if size else np.empty(0, dtype)


def _cut(
    path: Path | str,
    dim: int,
    state_shape: tuple[int, int],
    keys: np.ndarray,
    embeddings: np.ndarray,
    states: np.ndarray | None = None,
) -> Iterator[RowBlock]:
    """Checks that arrays fit the table, and cuts them into blocks."""
    if states is not None and state_shape[0] == 1 and states.ndim == 2:
        states = states[:, np.newaxis]
    whole = np.issubdtype(keys.dtype, np.integer) and keys.dtype != np.uint64
    arrays = [embeddings, *([] if states is None else [states])]
    real = all(np.issubdtype(array.dtype, np.floating) for array in arrays)
    count = keys.shape[0] if keys.ndim == 1 else -1
    shapes = [(count, dim), (count, *state_shape)][: len(arrays)]
    if not (whole and real and [array.shape for array in arrays] == shapes):
        received = ", ".join(f"{array.dtype} {list(array.shape)}" for array in [keys, *arrays])
        raise DataError(
            f"{path} needs keys [n] of whole numbers that fit in int64, floats [n, {dim}], and "
            f"states, if any, [n, {state_shape[0]}, {state_shape[1]}]. Received: {received}"
        )
    for begin in range(0, count, BLOCK_ROWS):
        part = slice(begin, begin + BLOCK_ROWS)
        yield RowBlock(
            np.asarray(keys[part], np.int64),
            np.asarray(embeddings[part], np.float32),
            None if states is None else np.asarray(states[part], np.float32),
        )
