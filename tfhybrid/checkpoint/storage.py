"""Storage of checkpoints: local folders, or URLs that TensorFlow supports.

A location is a `pathlib.Path`, or a `RemotePath` with the part of its interface that checkpoints
need. Local paths need neither TensorFlow nor Horovod. Every function raises `OSError` if the
storage fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tfhybrid.checkpoint.remote_path import RemotePath
from tfhybrid.core import whole_file

Location: TypeAlias = Path | RemotePath

_READ_BYTES = 4 << 20
_NO_FOLDER = -1  # names are absolute
_RENAME_EXCHANGE = 2  # from <linux/fs.h>


def location(directory: str | os.PathLike[str]) -> Location:
    """Returns the location of a path or a URL (`SCHEME://...`).

    Example:

    >>> location("checkpoints/"), location("s3://bucket/checkpoints/")
    (PosixPath('checkpoints'), RemotePath('s3://bucket/checkpoints'))
    """
    text = os.fspath(directory)
    return RemotePath(text) if "://" in text else Path(text)


def size(path: Location) -> int:
    """Returns a file's size in bytes.

    Raises:
        OSError: The file is missing, is not a plain file, or cannot be accessed.
    """
    _check_plain(path)
    return path.size() if isinstance(path, RemotePath) else path.stat().st_size


def modified(path: Location) -> float:
    """Returns the time of a file's last write, in seconds since 1970.

    Raises:
        OSError: The file is missing, or cannot be read.
    """
    return path.modified() if isinstance(path, RemotePath) else path.stat().st_mtime


def read(path: Location) -> np.ndarray:
    """Returns a file's content, uint8 `[n]`. Local files are mapped, others are read into memory.

    Raises:
        OSError: The file is missing, is not a plain file, or cannot be read.
    """
    _check_plain(path)
    if isinstance(path, RemotePath):
        return np.frombuffer(path.read_bytes(), np.uint8)
    with path.open("rb", buffering=0) as file:
        length = os.fstat(file.fileno()).st_size
        if length == 0:  # cannot be mapped
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ), np.uint8)


def pieces(path: Location) -> Iterator[np.ndarray]:
    """Yields a file's content in pieces, uint8; each piece overwrites the previous one.

    Raises:
        OSError: The file is missing, is not a plain file, or cannot be read.
    """
    _check_plain(path)
    if isinstance(path, RemotePath):
        yield from (np.frombuffer(piece, np.uint8) for piece in path.pieces(_READ_BYTES))
        return
    piece = bytearray(_READ_BYTES)
    content = np.frombuffer(piece, np.uint8)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            yield content[:count]


def write(path: Location, content: bytes) -> None:
    """Writes a file and forces it to disk. Other processes may see a part of the content.

    Args:
        path: Path of the file; an existing file is overwritten.
        content: New content.

    Raises:
        OSError: The file cannot be written.
    """
    if isinstance(path, Path):
        whole_file.write(path, content)
    else:
        path.write_bytes(content)


def write_whole(path: Location, content: bytes) -> None:
    """Writes a file atomically and forces it to disk; replaces an existing one.

    Args:
        path: Path of the file.
        content: New content.

    Raises:
        OSError: The file cannot be written. An existing file is unchanged.
    """
    if isinstance(path, Path):
        whole_file.write_whole(path, content)
    else:
        write(path, content)


@contextlib.contextmanager
def local_file(path: Location) -> Iterator[Path]:
    """Yields a local path for native code to write; then uploads the file if `path` is remote.

    Args:
        path: Final path of the file.

    Yields:
        The path itself if it is local, otherwise a temporary one.

    Raises:
        OSError: There is no space for a temporary file, or the file cannot be uploaded.
    """
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tfhybrid-") as folder:
        file = Path(folder) / path.name
        yield file
        path.upload(file)


def remove(folder: Location, first: str = "") -> None:
    """Removes a folder and its contents as far as possible; a local folder disappears at once.

    Never raises `OSError`.

    Args:
        folder: Folder to remove.
        first: Name of the file to remove first if the folder cannot disappear at once. Default:
            any.
    """
    if isinstance(folder, RemotePath):
        folder.remove(first)
        return
    if not folder.name.startswith("."):
        hidden = _beside(folder, f"removed.{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):
            folder.rename(hidden)
            sync(hidden.parent)
            folder = hidden
    shutil.rmtree(folder, ignore_errors=True)


def sync(path: Location) -> None:
    """Forces a local file or folder to disk; does nothing for a remote one.

    Raises:
        OSError: The path does not exist, or the disk failed.
    """
    if isinstance(path, Path):
        whole_file.sync(path)


def begin(folder: Location, mark: str = "unfinished") -> Location:
    """Creates and returns an unfinished folder, which `finish` turns into `folder`.

    Leftovers of killed processes are removed. Remote stores cannot rename: there the unfinished
    folder is `folder` itself, which is complete once its last file is written.

    Args:
        folder: Final folder.
        mark: Part of the temporary name. Default `"unfinished"`.

    Raises:
        OSError: The folder cannot be created, or already exists.
    """
    if isinstance(folder, RemotePath):
        folder.remove()
        return folder
    for left in folder.parent.glob(f".{folder.name}.*"):
        remove(left)
    unfinished = _beside(folder, mark)
    unfinished.mkdir(parents=True)
    return unfinished


def finish(unfinished: Location, folder: Location, *, replace: bool = False) -> None:
    """Makes a folder appear at once under its final name.

    Args:
        unfinished: Folder of `begin`, complete now, with all its files forced to disk.
        folder: Final folder.
        replace: Whether to replace an existing folder; this is atomic if the file system can
            exchange two names. Default: no.

    Raises:
        OSError: The final folder has appeared meanwhile and is not empty, or the disk failed.
    """
    if isinstance(unfinished, RemotePath) or isinstance(folder, RemotePath):
        return
    sync(unfinished)
    exchanged = replace and _exchange(unfinished, folder)
    if not exchanged:
        if replace:
            remove(folder)
        unfinished.rename(folder)
    sync(folder.parent)
    if exchanged:
        shutil.rmtree(unfinished, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges the names of two folders atomically; returns whether it could."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = (os.fsencode(one.absolute()), os.fsencode(other.absolute()))
    return rename(_NO_FOLDER, names[0], _NO_FOLDER, names[1], _RENAME_EXCHANGE) == 0


@contextlib.contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """Makes a local folder appear complete, or not at all.

    Args:
        folder: Final folder.

    Yields:
        A hidden folder to write to, beside the final one. When the block ends, its files are forced
        to disk and it is renamed; if the block raises, it is removed.

    Raises:
        OSError: The disk is full, or the folder has appeared meanwhile.

    Example:

    ```python
    with appearing(Path("exported/4")) as unfinished:
        tf.saved_model.save(module, unfinished)
    ```
    """
    unfinished = begin(folder)
    assert isinstance(unfinished, Path)
    try:
        yield unfinished
        for entry in unfinished.rglob("*"):
            sync(entry)
        finish(unfinished, folder)
    except BaseException:
        remove(unfinished)
        raise


def _beside(folder: Path, mark: str) -> Path:
    """Returns a temporary name for the folder."""
    return folder.with_name(f".{folder.name}.{mark}")


def _check_plain(path: Location) -> None:
    if not path.is_file():  # opening a pipe would block forever
        raise FileNotFoundError(f"there is no plain file {path.name}")
