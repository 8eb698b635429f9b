"""How many random reads of a page a disk does in a second."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import time

import numpy as np

PAGE = 4096


def reads_per_second(path: str, threads: int, file_bytes: int = 2**30, seconds: float = 2) -> float:
    """Returns the reads of 4 KiB a second, past the page cache.

    Args:
        path: A directory on the disk.
        threads: That read at once.
        file_bytes: Of the file that is read from.
        seconds: How long.
    """
    with tempfile.NamedTemporaryFile(dir=path) as file:
        block = os.urandom(2**20)
        for _ in range(file_bytes // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        counts = [0] * threads
        end = time.perf_counter() + seconds

        def read(number: int) -> None:
            opened = os.open(file.name, os.O_RDONLY | os.O_DIRECT)
            page = mmap.mmap(-1, PAGE)
            random = np.random.default_rng(number)
            while time.perf_counter() < end:
                for place in random.integers(0, file_bytes // PAGE, 64):
                    os.preadv(opened, [page], int(place) * PAGE)
                counts[number] += 64
            os.close(opened)

        readers = [threading.Thread(target=read, args=(number,)) for number in range(threads)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    return sum(counts) / seconds
