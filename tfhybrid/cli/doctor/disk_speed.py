"""Measurement of random reads from a disk. Tables in files depend on their speed."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import mmap
import os
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO

_BLOCK = 4096
_FILE_BYTES = 256 << 20  # larger than a disk's own cache
_THREADS = 16
_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class DiskSpeed:
    """The result of a measurement.

    Args:
        reads: Random reads of 4 KiB per second, over all threads.
        direct: Whether reads bypassed the page cache; otherwise it may have served some of them.
    """

    reads: float
    direct: bool


def measure(
    directory: str,
    file_bytes: int = _FILE_BYTES,
    seconds: float = _SECONDS,
    threads: int = _THREADS,
) -> DiskSpeed:
    """Measures random reads: writes a temporary file, reads blocks of it, and removes it.

    Args:
        directory: Directory on the disk to measure.
        file_bytes: Size of the file, a multiple of 1 MiB.
        seconds: Duration of the reads, in seconds.
        threads: Number of threads that read.

    Returns:
        The reads per second. The temporary file is gone, also after an error.

    Raises:
        OSError: The file cannot be written or read, for example because the disk is full.

    Example:

    >>> import tempfile
    >>> measure(tempfile.gettempdir(), 1 << 20, 0.01).reads > 0
    True
    """
    with tempfile.NamedTemporaryFile(dir=directory, prefix="tfhybrid-doctor-") as file:
        _fill(file, file_bytes)
        descriptor, direct = _open(file.name)
        try:
            with ThreadPoolExecutor(threads) as readers:
                started = time.monotonic()
                until = started + seconds
                counts = readers.map(
                    lambda seed: _read(descriptor, file_bytes, until, seed), range(threads)
                )
                return DiskSpeed(sum(counts) / (time.monotonic() - started), direct)
        finally:
            os.close(descriptor)


def _fill(file: IO[bytes], size: int) -> None:
    """Writes data that no file system can compress."""
    for _ in range(size >> 20):
        file.write(os.urandom(1 << 20))
    file.flush()
    os.fsync(file.fileno())


def _open(path: str) -> tuple[int, bool]:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return descriptor, False


def _read(descriptor: int, size: int, until: float, seed: int) -> int:
    offsets = random.Random(seed)
    with contextlib.closing(mmap.mmap(-1, _BLOCK)) as block:  # aligned, as O_DIRECT requires
        count = 0
        while count == 0 or time.monotonic() < until:
            if os.preadv(descriptor, [block], offsets.randrange(size // _BLOCK) * _BLOCK) < _BLOCK:
                raise OSError(errno.EIO, "the file is shorter than what was written")
            count += 1
        return count
