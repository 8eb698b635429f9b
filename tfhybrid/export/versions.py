"""Version folders as TensorFlow Serving expects them, named by number.

PATH/3/                  complete: Serving loads the highest number
PATH/.4.unfinished/      being written; Serving ignores it (checkpoint.storage.appearing)
"""

from __future__ import annotations

import os
from pathlib import Path

from tfhybrid.errors import ConfigError, ExportError


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Returns the path of a folder for an export.

    Args:
        path: Local or mounted folder.

    Raises:
        ConfigError: The path is an address such as `gs://bucket/model`.

    Example:

    >>> local_folder("exported/click_model")
    PosixPath('exported/click_model')
    """
    text = os.fspath(path)
    if "://" in text:
        raise ConfigError(
            "An export needs a local or mounted folder, from which you can copy it to a bucket. "
            f"Received: {text!r}"
        )
    return Path(text)


def versions(path: Path) -> list[int]:
    """Returns the versions in a folder, lowest first.

    Raises:
        OSError: The folder cannot be read.

    Example:

    >>> versions(Path("/nowhere"))
    []
    """
    if not path.is_dir():
        return []
    names = (entry.name for entry in path.iterdir() if entry.is_dir())
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def choose(path: Path, version: int | None) -> Path:
    """Returns the folder for a new version.

    Args:
        path: Folder of the model's versions.
        version: Number of the version. `None` takes the one after the highest, 1 for the first.

    Raises:
        ExportError: The version exists; Serving would not notice that it was replaced.
        OSError: The folder cannot be read.
    """
    existing = versions(path)
    if version is None:
        version = max(existing, default=0) + 1
    if version in existing:
        raise ExportError(
            "A new version must not exist yet: TensorFlow Serving would not load it again. "
            f"Received: {version} of {existing}"
        )
    return path / str(version)
