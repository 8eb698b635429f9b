"""Expansion of paths and patterns to files."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from tfhybrid.errors import DataError


def files_of(names: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Returns the files that paths and patterns name, each once, sorted by their names.

    Args:
        names: Path, pattern such as `"day_*/*.parquet"`, or several of them.

    Raises:
        DataError: One of the names matches no file.
    """
    several = [names] if isinstance(names, (str, os.PathLike)) else names
    return sorted({Path(path) for name in several for path in _matches(name)})


def _matches(name: str | os.PathLike[str]) -> list[str]:
    if Path(name).exists():
        return [os.fspath(name)]
    if not (paths := glob.glob(os.fspath(name), recursive=True)):
        raise DataError(f"Expected files at {os.fspath(name)!r}. Received: none there.")
    return paths
