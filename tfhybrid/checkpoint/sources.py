"""Sources of rows for `Table.load`: keys and embeddings that another program wrote.

They are the way from Keras, parameter servers and TFRA to tfhybrid. A source yields rows in blocks.
If the format allows it, only one block is in memory beside the table.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfhybrid.core.row_block import RowBlock
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.store.row_check import RowCheck
from tfhybrid.values import Column, check

BLOCK_ROWS = 1 << 18
# Errors of NumPy and zipfile for a file that is not an archive, is damaged or encrypted, contains
# Python objects, or declares impossible sizes.
_BAD_ARCHIVE = (
    *(ValueError, TypeError, EOFError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


def _check_plain(path: Path) -> None:
    if path.exists() and not path.is_file():  # opening a pipe would block forever
        raise DataError(f"{path} must be a file. Received: a directory, pipe or device")


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[Any]:
    """Opens an `.npz` file.

    Raises:
        DataError: The file is damaged, or is not an `.npz` file. Raised by reads in the block, too.
    """
    _check_plain(path)
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
    """Opens a Parquet file, whose pages are compared with their checksums as far as they have any.

    Raises:
        DataError: The file is damaged, or is not a Parquet file. Raised by reads in the block, too.
    """
    import pyarrow  # takes long to import
    import pyarrow.parquet

    _check_plain(path)
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the system, such as a missing file; that of a damaged page has no number
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
        keys: Keys, whole numbers `[n]`: a NumPy or Arrow array, or a list.
        embeddings: Embeddings, numbers `[n, dim]`: a NumPy array, an Arrow array of lists, or a
            list.
        states: Optimizer states, numbers `[n, vectors, dim]` (`[n, dim]` if a row has one state
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
        # A list stays one: an array of [1, True] would have the key 1 twice.
        plain = list(keys) if isinstance(keys, (list, tuple)) else _array(keys)
        parts = [embeddings, *([] if states is None else [states])]
        self._arrays = [plain, *(_array(part) for part in parts)]

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields the rows in blocks.

        Args:
            dim: Length of an embedding of the table.
            state_shape: Shape of a row's optimizer state in the table: vectors, and floats in each.

        Raises:
            DataError: The arrays do not fit the table, or a row is bad.
        """
        names = ("keys", "embeddings", "states")
        yield from _cut(self.path, names, dim, state_shape, self._arrays)


class NumpyRows:
    """Rows in an `.npz` file of arrays.

    Args:
        path: Path of the file; every host reads it.
        keys: Name of the array of keys, whole numbers `[n]`. Default `"keys"`.
        embeddings: Name of the array of embeddings, numbers `[n, dim]`. Default `"embeddings"`.
        states: Name of the array of optimizer states, numbers `[n, vectors, dim]` (`[n, dim]` if a
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
            DataError: The file is damaged, lacks an array or does not fit the table, or a row is
                bad.
            OSError: The file is missing.
        """
        with _archive(self.path) as file:
            in_file = sorted(file)
            if not {*self._names} <= {*in_file}:
                raise DataError(f"{self.path} needs the arrays {self._names}. Received: {in_file}")
            # Before memory is taken for what the file declares.
            declared = [_declared(file.zip, name) for name in self._names]
            _check_shapes(self.path, dim, state_shape, declared)
            arrays = [file[name] for name in self._names]
        names = [f"array {name!r}" for name in self._names]
        yield from _cut(self.path, names, dim, state_shape, arrays)


class ParquetRows:
    """Rows in a Parquet file with one row per key.

    Args:
        path: Path of the file; every host reads it.
        key: Name of the column of keys, whole numbers. Default `"key"`.
        embedding: Name of the column of embeddings, lists of `dim` numbers. Default `"embedding"`.
        state: Name of the column of optimizer states: lists of numbers, the row's state vectors of
            `dim` numbers one after the other (with RowAdagrad, one number). Default: `None`, states
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
            DataError: The file is damaged, lacks a column or does not fit the table, or a row is
                bad.
            OSError: The file is missing.
        """
        places = [f"{self.path}, column {name!r}" for name in self._columns]
        rows = RowCheck(places, dim, state_shape)
        with _parquet(self.path) as file:
            names = file.schema_arrow.names
            if any(names.count(name) != 1 for name in self._columns):
                raise DataError(
                    f"{self.path} needs the columns {self._columns}, each once. Received: {names}"
                )
            floats = max(dim, state_shape[0] * state_shape[1])
            _check_lists(self.path, file.metadata, self._columns, floats)
            for batch in file.iter_batches(BLOCK_ROWS, columns=self._columns):
                yield rows.block(*(batch.column(name) for name in self._columns))


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

    Raises:
        ConfigError: `first_key` is not a whole number of int64.

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
        if check(Column("first_key"), [first_key]).bad.any():
            raise ConfigError(f"first_key must be a whole number of int64. Received: {first_key!r}")
        self.path = Path(checkpoint)
        self._names = [variable, *(states or ())]
        self._first_key = first_key

    def blocks(self, dim: int, state_shape: tuple[int, int]) -> Iterator[RowBlock]:
        """Yields the rows in blocks.

        Args:
            dim: Length of an embedding of the table.
            state_shape: Shape of a row's optimizer state in the table: vectors, and floats in each.

        Raises:
            DataError: There is no checkpoint, it is damaged, lacks a variable or does not fit the
                table, or a row is bad.
        """
        embeddings, *states = self._variables()
        if len({array.shape for array in states}) > 1:
            raise DataError(
                f"{self.path} needs states of one shape for {self._names[0]!r}. "
                f"Received: {[list(array.shape) for array in states]} of {self._names[1:]}"
            )
        keys = self._keys(len(embeddings) if embeddings.ndim else 0)
        vectors = [np.stack(states, axis=1)] if states and states[0].ndim else states
        names = ("keys", f"variable {self._names[0]!r}", f"variables {self._names[1:]}")
        yield from _cut(self.path, names, dim, state_shape, [keys, embeddings, *vectors])

    def _keys(self, count: int) -> np.ndarray:
        """Returns the keys of the rows."""
        if self._first_key + count > 2**63:
            raise DataError(
                f"{self.path} needs keys of int64 for its {count} rows. "
                f"Received: first_key={self._first_key}"
            )
        return np.arange(count, dtype=np.int64) + np.int64(self._first_key)

    def _variables(self) -> list[np.ndarray]:
        """Reads the variables."""
        import tensorflow as tf

        try:
            reader = tf.train.load_checkpoint(str(self.path))
            names = reader.get_variable_to_shape_map()
        except (tf.errors.OpError, ValueError) as error:
            raise DataError(f"{self.path} is not a TensorFlow checkpoint: {error}") from error
        arrays = []
        for name in self._names:
            full_name = name if name in names else f"{name}/.ATTRIBUTES/VARIABLE_VALUE"
            if full_name not in names:
                raise DataError(
                    f"{self.path} has no variable of that name. Received: {name!r}; it has "
                    f"{sorted(names)}"
                )
            try:
                array = np.asarray(reader.get_tensor(full_name))
            except tf.errors.OpError as error:
                raise DataError(
                    f"{self.path}, variable {name!r}: expected its values. "
                    f"Received: {error.message}"
                ) from error
            narrow = array.dtype == tf.bfloat16.as_numpy_dtype
            arrays.append(array.astype(np.float32) if narrow else array)
        return arrays


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
            DataError: A file is truncated or does not fit the table, or a row is bad.
            OSError: A file is missing.
        """
        files = [self.path.with_name(f"{self.path.name}-{part}") for part in ("keys", "values")]
        keys, values = _mapped(files[0], "<i8"), _mapped(files[1], "<f4")
        if len(values) != len(keys) * dim:
            raise DataError(
                f"{self.path} needs {dim} floats for each of its {len(keys)} keys. "
                f"Received: {len(values)} floats"
            )
        arrays = [keys, values.reshape(len(keys), dim)]
        names = [f"file {file.name!r}" for file in files]
        yield from _cut(self.path, names, dim, state_shape, arrays)


def _mapped(path: Path, dtype: str) -> np.ndarray:
    size = path.stat().st_size
    if size % np.dtype(dtype).itemsize:
        raise DataError(f"{path} is truncated. Received: {size} bytes")
    return np.memmap(path, dtype, "r") if size else np.empty(0, dtype)


def _array(values: Any) -> Any:
    """Returns an array, or a list of rows of several lengths or types, to be checked one by one."""
    if isinstance(values, (list, tuple)):
        values = list(values)
        try:
            array = np.asarray(values)
        except ValueError:  # rows of different lengths
            return values
        return array if array.size and array.dtype.kind in "fiu" else values
    if type(values).__module__.partition(".")[0] == "pyarrow":
        return values
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    return array.tolist() if array.dtype == object and array.ndim else array


def _declared(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Returns an array of the shape and type that an array in a file declares, without memory."""
    member = f"{name}.npy"
    with archive.open(member if member in archive.namelist() else name) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(file)
    return np.broadcast_to(np.zeros((), dtype), shape)


def _check_lists(path: Path, metadata: Any, columns: Sequence[str], floats: int) -> None:
    """Refuses lists of which most are longer than a row, before memory is taken for them.

    Args:
        path: Path of a Parquet file.
        metadata: Its footer.
        columns: Names of the columns.
        floats: Maximum number of values in a row.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for leaf in map(group.column, range(group.num_columns)):
            name = leaf.path_in_schema.partition(".")[0]
            if name in columns and leaf.num_values > 2 * floats * group.num_rows:
                raise DataError(
                    f"{path}, column {name!r}: expected at most {floats} values in a row. "
                    f"Received: {leaf.num_values} values in {group.num_rows} rows"
                )


def _cut(
    path: Path | str,
    names: Sequence[str],
    dim: int,
    state_shape: tuple[int, int],
    arrays: Sequence[Any],
) -> Iterator[RowBlock]:
    """Checks that keys, embeddings and states fit the table, and cuts them into checked blocks."""
    count = _check_shapes(path, dim, state_shape, arrays)
    rows = RowCheck([f"{path}, {name}" for name in names], dim, state_shape)
    for begin in range(0, count, BLOCK_ROWS):
        yield rows.block(*(array[begin : begin + BLOCK_ROWS] for array in arrays))


def _check_shapes(
    path: Path | str, dim: int, state_shape: tuple[int, int], arrays: Sequence[Any]
) -> int:
    """Checks the shapes of keys, embeddings and states; returns the number of rows."""
    keys, *parts = arrays
    flat = not isinstance(keys, np.ndarray) or keys.ndim == 1
    count = len(keys) if flat else -1
    shapes: list[tuple[int, ...]] = [(count, dim), (count, *state_shape)]
    if len(parts) > 1 and state_shape[0] == 1 and getattr(parts[1], "ndim", 0) == 2:
        shapes[1] = (count, state_shape[1])
    if any(_shape(part, shape) != shape for part, shape in zip(parts, shapes, strict=False)):
        received = ", ".join(map(_described, arrays))
        raise DataError(
            f"{path} needs keys [n] of whole numbers that fit in int64, floats [n, {dim}], and "
            f"states, if any, [n, {state_shape[0]}, {state_shape[1]}]. Received: {received}"
        )
    return count


def _shape(part: Any, expected: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of an array. The rows of a list may differ, and are checked later."""
    return part.shape if isinstance(part, np.ndarray) else (len(part), *expected[1:])


def _described(part: Any) -> str:
    if isinstance(part, np.ndarray):
        return f"{part.dtype} {list(part.shape)}"
    return f"{type(part).__name__} [{len(part)}]"
