"""Folders as TensorFlow Serving expects them: one per version, named by its number.

PATH/3/                  complete: Serving loads the highest number it sees
PATH/.4.unfinished/      being written; Serving does not look at it
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tfhybrid.checkpoint.manifest import sync
from tfhybrid.errors import ExportError


def versions(path: Path) -> list[int]:
    """Returns the versions in a folder, lowest first.

    Example:

    >>> versions(Path("/nowhere"))
    []
    """
    if not path.is_dir():
        return []
    names = (entry.name for entry in path.iterdir() if entry.is_dir())
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def choose(path: Path, version: int | None) -> Path:
    """Returns the folder that a new version gets.

    Args:
        path: Where the versions of a model are kept.
        version: The number wanted. `None` takes the one after the highest, 1 for the first.

    Raises:
        ExportError: The version exists; Serving would not notice that it was replaced.
    """
    there = versions(path)
    if version is None:
        version = max(there, default=0) + 1
    if version in there:
        raise ExportError(f"A new version is none of those there. Received: {version} of {there}")
    return path / str(version)


@contextlib.contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """Makes a folder appear at once and complete, or not at all.

    Yields:
        A hidden folder beside it to write to. When the block ends it is forced to disk and
        renamed; if the block raises it is removed. What a killed process leaves is removed by the
        next one that writes the same version.

    Raises:
        OSError: The disk is full, or the folder has appeared meanwhile.

    Example:

    ```python
    with appearing(Path("exported/4")) as unfinished:
        tf.saved_model.save(module, unfinished)
    ```
    """
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        for entry in [*unfinished.rglob("*"), unfinished]:
            sync(entry)
        unfinished.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
