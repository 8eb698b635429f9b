"""Copying a store from one embedding node to another, file by file.

Nobody changes the store meanwhile, because the trainers wait between two steps. The copy therefore
equals what a process killed at that moment would leave, and is recovered like it: raw rows, both
decays, waiting keys and histories, versions, and the optimizer's state. The batches that the node
holds are sent before the store.
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
from tfhybrid.core.whole_file import write_at
from tfhybrid.errors import StoreError
from tfhybrid.rpc.messages import MessageLink

_CHUNK_BYTES = 16 << 20


def send_store(link: MessageLink, directory: Path) -> None:
    """Sends the files of a store, which stays open on this node. No update may run meanwhile.

    Args:
        link: Connection to the node that receives the copy.
        directory: Folder of the store.

    Raises:
        StoreError: The other node is gone.
        OSError: A file cannot be read.
    """
    files = 0
    for path in sorted(directory.iterdir()):
        # Not sent: locks of living processes, and unfinished files, which recovery would remove.
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
    """Receives the files that `send_store` sends. The new folder appears whole or not at all.

    Args:
        link: Connection to the node that has the store.
        directory: Folder for the copy. A folder that another run left there is replaced.

    Returns:
        Bytes of content that were received.

    Raises:
        StoreError: The other node is gone, or sent something else. Nothing is left behind.
        OSError: A file cannot be written. Nothing is left behind.
        KeyError: A message lacks a field. Nothing is left behind.
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
    """Sends the batches that this node holds, before its store.

    Args:
        link: Connection to the node that receives the copy.
        engine: Engine of this node.

    Raises:
        StoreError: The other node is gone.
    """
    words = split_batches.copied(engine)
    chunk = _CHUNK_BYTES // words.itemsize
    link.send({"words": len(words)})
    for start in range(0, len(words), chunk):
        link.send({}, {"words": words[start : start + chunk]})


def receive_batches(link: MessageLink) -> np.ndarray:
    """Receives the batches that `send_batches` sends.

    Args:
        link: Connection to the node that has the batches.

    Returns:
        Batches for `split_batches.restore`, int64.

    Raises:
        StoreError: The other node is gone, or sent no message.
        KeyError: A message does not contain batches.
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
                    raise StoreError(
                        f"{link.peer} sends a store of {message['files']} files. Received: {files}"
                    )
                return received
            if "file" in message:
                name = str(message["file"])
                if Path(name).name != name:
                    raise StoreError(
                        f"{link.peer} must name a file of its store without folders. "
                        f"Received: {name!r}"
                    )
                held.close()
                file = os.open(directory / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                held.callback(os.close, file)
                os.truncate(file, int(message["size"]))
                files += 1
            else:
                content = arrays["content"]
                write_at(file, content.tobytes(), int(message["offset"]))
                received += len(content)


def _runs(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields offset and bytes of each piece of content in a sparse file.

    Holes are skipped: most of a new chunk of a table is one.

    Args:
        file: Descriptor of the file.
        size: Bytes of the file, with holes.
    """
    at = 0
    while at < size:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError:  # a hole that reaches the end of the file
            return
        end = os.lseek(file, at, os.SEEK_HOLE)
        while at < end:
            count = min(_CHUNK_BYTES, end - at)
            yield at, count
            at += count
