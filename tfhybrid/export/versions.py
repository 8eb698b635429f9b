"""Version folders as TensorFlow Serving expects them, named by number.

PATH/3/                  complete: Serving loads the highest number
PATH/.4.unfinished/      being written; Serving ignores it (checkpoint.storage.appearing)
"""

from __future__ import annotations

from pathlib import Path

from tfhybrid.errors import ExportError


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
