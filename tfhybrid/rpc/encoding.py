"""Encoding of Python values as JSON with arrays beside it.

Arrays, bytes and dtypes are replaced by objects with one key that begins with `$`. A `$` at the
begin of any other key is doubled. What arrives has plain types; `remote_methods` checks it, and
makes dataclasses and named tuples of it.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfhybrid._remote import AsJson
from tfhybrid.rpc.messages import Arrays

_SCALARS = (str, bool, int, float)
_ARRAY, _BYTES, _DTYPE, _RECORDS = "$array", "$bytes", "$dtype", "$records"


class Encoder:
    """Encoder of the values of one message.

    Attributes:
        arrays: Arrays of the values encoded so far, by name.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def encoded(self, value: Any) -> Any:
        """Converts a value to lists, dictionaries and scalars that `json.dumps` accepts.

        Adds its arrays to `arrays`, without copying them; the result names them.

        Args:
            value: `None`, a number, text, bytes, NumPy array or dtype, path, enum or `AsJson`; or a
                dataclass, named tuple, list, set or mapping (with keys of text) of such values.

        Raises:
            TypeError: The value, or a value in it, has another type, or is an array of Python
                objects.
        """
        scalar = value.value if isinstance(value, enum.Enum) else value
        if scalar is None or isinstance(scalar, _SCALARS):
            return scalar
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, bytes | bytearray | memoryview):
            return {_BYTES: self._kept(np.frombuffer(value, np.uint8))}
        if isinstance(value, np.dtype):
            return {_DTYPE: layout_of(value)}
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, AsJson):
            return value.to_json()
        return self._several(value)

    def _several(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            fields = (field.name for field in dataclasses.fields(value) if field.init)
            return {name: self.encoded(getattr(value, name)) for name in fields}
        if isinstance(value, Mapping):
            return {_escaped(name): self.encoded(each) for name, each in value.items()}
        if isinstance(value, tuple | list | set | frozenset):
            return [self.encoded(each) for each in value]
        raise TypeError(f"A value of this type cannot travel. Received: {type(value).__name__}")

    def _array(self, array: np.ndarray) -> dict[str, Any]:
        if array.dtype.hasobject:
            raise TypeError(f"Arrays of objects cannot travel. Received: dtype {array.dtype}")
        if array.dtype.names is None:
            return {_ARRAY: self._kept(array)}
        records = np.ascontiguousarray(array)
        plain = self._kept(np.frombuffer(records.tobytes(), np.uint8))
        return {_RECORDS: plain, "dtype": layout_of(array.dtype), "shape": list(array.shape)}

    def _kept(self, array: np.ndarray) -> str:
        name = str(len(self.arrays))
        self.arrays[name] = array
        return name


def decoded(value: Any, arrays: Arrays) -> Any:
    """Returns the value that `Encoder.encoded` encoded, with plain types.

    Args:
        value: Encoded value.
        arrays: Arrays of its message.

    Raises:
        KeyError, TypeError, ValueError: The value is not encoded like that.
    """
    if isinstance(value, list):
        return [decoded(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return arrays[value[_ARRAY]]
    if _BYTES in value:
        return arrays[value[_BYTES]].tobytes()
    if _DTYPE in value:
        return dtype_of(value[_DTYPE])
    if _RECORDS in value:
        plain = arrays[value[_RECORDS]].tobytes()
        return np.frombuffer(plain, dtype_of(value["dtype"])).reshape(value["shape"]).copy()
    return {_plain(name): decoded(each, arrays) for name, each in value.items()}


def layout_of(dtype: np.dtype) -> Any:
    """Converts a dtype to lists and dictionaries that `json.dumps` accepts; see `dtype_of`.

    Args:
        dtype: Dtype without Python objects, which `dtype_of` refuses. It may have named fields at
            any offsets and any padding.
    """
    if dtype.names is None:
        base = dtype.base
        return [base.str if base.names is None else layout_of(base), list(dtype.shape)]
    of_names = dict(dtype.fields or {})
    fields = [of_names[name] for name in dtype.names]  # titles do not count
    return {
        "names": list(dtype.names),
        "formats": [layout_of(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
    }


def dtype_of(layout: Any) -> np.dtype:
    """Returns the dtype from which `layout_of` made a layout.

    Args:
        layout: Layout of an item, or its name in NumPy, and shape; or `names`, `formats`, `offsets`
            and `itemsize` in bytes.

    Raises:
        KeyError, TypeError, ValueError: It is not such a layout, or has Python objects.
    """
    if isinstance(layout, list):
        base, shape = layout
        of_items = dtype_of(base) if isinstance(base, dict) else np.dtype(str(base))
        dtype = np.dtype((of_items, tuple(shape)))
    else:
        dtype = np.dtype(
            {
                "names": layout["names"],
                "formats": [dtype_of(each) for each in layout["formats"]],
                "offsets": layout["offsets"],
                "itemsize": layout["itemsize"],
            }
        )
    if dtype.hasobject:
        raise ValueError(f"A dtype must have no objects. Received: {layout}")
    return dtype


def _escaped(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"Keys of a mapping must be texts. Received: {name!r}")
    return f"${name}" if name.startswith("$") else name


def _plain(name: str) -> str:
    if name.startswith("$") and not name.startswith("$$"):
        raise ValueError(f"'{name}' is no encoded value")
    return name.removeprefix("$")
