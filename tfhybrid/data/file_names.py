"""Which files a path or a pattern names."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from tfhybrid.errors import DataError


def files_of(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Returns the files that paths and patterns name, each once, in the order of their names.

    Args:
        given: A path, a pattern such as `"day_*/*.parquet"`, or several.

    Raises:
        DataError: One of them names no file.
    """
    each = [given] if isinstance(given, (str, os.PathLike)) else given
    return sorted({Path(found) for name in each for found in _found(name)})


def _found(name: str | os.PathLike[str]) -> list[str]:
    if Path(name).exists():
        return [os.fspath(name)]
    if not (found := glob.glob(os.fspath(name), recursive=True)):
        raise DataError(f"Wanted files at {os.fspath(name)!r}. Received: none there.")
    return found
