"""Binary files of keys and embeddings."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class RecordFile:
    """A binary file of records, each with a key and an embedding; the dtype is the schema.

    Args:
        path: Path of the file; it must exist on every host.
        dtype: A NumPy structured dtype, little-endian, with an int64 field `key` and a float32
            field `embedding` of shape `[dim]`. Other fields and padding are skipped.
        header_bytes: Bytes before the first record.

    Example:

    >>> import numpy as np
    >>> record = np.dtype([("key", "<i8"), ("clicks", "<u4"), ("embedding", "<f4", (16,))])
    >>> RecordFile("embeddings.bin", record).layout(16)
    (0, 76, 0, 12)
    """

    path: str | os.PathLike[str]
    dtype: np.dtype
    header_bytes: int = 0

    def layout(self, dim: int) -> tuple[int, int, int, int]:
        """Returns header size, record size, and the offsets of key and embedding in a record.

        Args:
            dim: Length of an embedding.

        Raises:
            ConfigError: The dtype lacks one of the fields, or its embedding has another length.
        """
        fields: dict[str, Any] = dict(self.dtype.fields or {})
        required = {"key": np.dtype("<i8"), "embedding": np.dtype(("<f4", (dim,)))}
        for name, dtype in required.items():
            if name not in fields or fields[name][0] != dtype:
                raise ConfigError(
                    f"Records of {Path(self.path)} must have a field '{name}' of type {dtype}. "
                    f"Received: {self.dtype}"
                )
        return (
            self.header_bytes,
            self.dtype.itemsize,
            fields["key"][1],
            fields["embedding"][1],
        )
