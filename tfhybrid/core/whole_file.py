"""Files that are written atomically, and bytes that are written whole."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Forces a file or folder to disk (`fsync`).

    Raises:
        OSError: The path does not exist, or the disk failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, content: bytes) -> None:
    """Writes a file and forces it to disk. After a crash the file may have a part of the content.

    Args:
        path: Path of the file; an existing file is overwritten.
        content: New content.

    Raises:
        OSError: The file cannot be written.
    """
    path.write_bytes(content)
    sync(path)


def write_at(file: int, content: bytes, byte: int) -> None:
    """Writes all of some bytes into an open file. If it fails, a part of them may be there.

    Args:
        file: Descriptor of the file.
        content: Bytes to write.
        byte: Byte of the file at which they begin.

    Raises:
        OSError: The bytes cannot be written, or not all of them.
    """
    view = memoryview(content)
    while view:
        written = os.pwrite(file, view, byte)
        byte += written
        view = view[written:]


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file atomically and forces it to disk; replaces an existing file.

    Two processes must not write the same path at the same time.

    Args:
        path: Path of the file.
        content: New content.

    Raises:
        OSError: The file cannot be written.
    """
    unfinished = unfinished_of(path)
    write(unfinished, content)
    unfinished.replace(path)
    sync(path.parent)


def unfinished_of(path: Path) -> Path:
    """Returns the hidden path beside a file where `write_whole` writes it until it is complete.

    Args:
        path: Path of the complete file.
    """
    return path.with_name(f".{path.name}.unfinished")
