"""A store on its way from one embedding node to another, file by file.

Nobody changes it meanwhile: the trainers wait between two steps. So the copy is what a process that
was killed at that moment would leave, and opens as such: raw rows, both decays, waiting keys and
histories, versions, the optimizer's state. In front of it go the batches that the node holds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tfhybrid.core import split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.errors import StoreError
from tfhybrid.rpc.messages import MessageLink

_CHUNK_BYTES = 16 << 20


def send_store(link: MessageLink, directory: Path) -> None:
    """Sends a store; who holds it stays its holder.

    Args:
        link: To the node that asks for it.
        directory: Of the store.

    Raises:
        StoreError: The other node is gone.
        OSError: A file cannot be read.
    """
    files = 0
    for path in sorted(directory.iterdir()):
        # The locks of living processes; and what was being built, which a new holder removes.
        if path.name.startswith("rank-") or path.suffix == ".new" or not path.is_file():
            continue
        files += 1
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            link.send({"file": path.name, "size": size})
            for offset, count in _runs(file.fileno(), size):
                content = np.frombuffer(os.pread(file.fileno(), count, offset), np.uint8)
                link.send({"offset": offset}, {"content": content})
    link.send({"files": files})


def receive_store(link: MessageLink, directory: Path) -> int:
    """Receives what `send_store` sends.

    Args:
        link: To the node that has the store.
        directory: Of the new one; it appears whole. What another run has left there is removed.

    Returns:
        How many bytes came.

    Raises:
        StoreError: The other node is gone, or sent something else. Nothing is left.
        OSError: A file cannot be written.
    """
    coming = directory.with_name(f".{directory.name}.coming")
    shutil.rmtree(coming, ignore_errors=True)
    coming.mkdir(mode=0o700)
    try:
        received = _received(link, coming)
        shutil.rmtree(directory, ignore_errors=True)
        coming.rename(directory)
    except BaseException:
        shutil.rmtree(coming, ignore_errors=True)
        raise
    return received


def send_batches(link: MessageLink, engine: Engine) -> None:
    """Sends the batches that a node holds, in front of its store.

    Args:
        link: To the node that asks for it.
        engine: Of the node that has them.

    Raises:
        StoreError: The other node is gone.
    """
    words = split_batches.copied(engine)
    some = _CHUNK_BYTES // words.itemsize
    link.send({"words": len(words)})
    for start in range(0, len(words), some):
        link.send({}, {"words": words[start : start + some]})


def receive_batches(link: MessageLink) -> np.ndarray:
    """Receives what `send_batches` sends.

    Args:
        link: To the node that has the batches.

    Returns:
        What `batches.restore` takes.

    Raises:
        StoreError: The other node is gone, or sent something else.
    """
    count = int(link.receive()[0]["words"])
    parts = [np.empty(0, np.int64)]
    while sum(map(len, parts)) < count:
        parts.append(link.receive()[1]["words"])
    return np.concatenate(parts)


def _received(link: MessageLink, directory: Path) -> int:
    files = received = 0
    with contextlib.ExitStack() as held:
        file = -1
        while True:
            message, arrays = link.receive()
            if "files" in message:
                if message["files"] != files:
                    raise StoreError(f"A store of {message['files']} files. Received: {files}")
                return received
            if "file" in message:
                name = str(message["file"])
                if Path(name).name != name:
                    raise StoreError(f"{link.peer} names a file of its store. Received: {name!r}")
                held.close()
                file = os.open(directory / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                held.callback(os.close, file)
                os.truncate(file, int(message["size"]))
                files += 1
            else:
                content = arrays["content"]
                os.pwrite(file, content.tobytes(), int(message["offset"]))
                received += len(content)


def _runs(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields where there is content: a new chunk of a table is a hole for the most part."""
    at = 0
    while at < size:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError:  # a hole up to the end
            return
        end = os.lseek(file, at, os.SEEK_HOLE)
        while at < end:
            count = min(_CHUNK_BYTES, end - at)
            yield at, count
            at += count
