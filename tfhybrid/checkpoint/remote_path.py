"""Remote paths such as `s3://`, `gs://` and `hdfs://`, through `tf.io.gfile`."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PROBE = ".tfhybrid-probe"  # no file has this name


class RemotePath:
    """Path of a URL, with the part of `pathlib.Path`'s interface that checkpoints need.

    Only the methods access the store. All of them but `remove` raise `OSError` if that fails;
    `exists` does so only where TensorFlow's file system does: that of `s3://` does not.

    Args:
        url: URL `SCHEME://...` in a file system that TensorFlow or tensorflow-io supports.

    Example:

    >>> (RemotePath("s3://bucket/checkpoints/") / "step-0000000001").name
    'step-0000000001'
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def __fspath__(self) -> str:
        return self._url

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"RemotePath({self._url!r})"

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self._url}/{name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self._url == other._url

    def __hash__(self) -> int:
        return hash(self._url)

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self._url.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """The path without its last part."""
        return RemotePath(self._url.rpartition("/")[0])

    def exists(self) -> bool:
        """Returns whether there is a file or folder.

        Raises:
            OSError: The store cannot be accessed.
        """
        with _store(self._url) as gfile:
            return bool(gfile.exists(self._url))

    def is_file(self) -> bool:
        """Returns whether the path exists and is not a folder.

        Raises:
            OSError: The store cannot be accessed.
        """
        return self.exists() and not self.is_dir()

    def is_dir(self) -> bool:
        """Returns whether the path is a folder.

        Raises:
            OSError: The store cannot be accessed.
        """
        import tensorflow as tf

        with _store(self._url) as gfile:
            if gfile.isdir(self._url):
                return True
            # `isdir` and `exists` are also false in an outage; only a read tells it from no folder.
            with (
                contextlib.suppress(tf.errors.NotFoundError),
                gfile.GFile(f"{self / _PROBE}") as probe,
            ):
                probe.read(1)
        return False

    def size(self) -> int:
        """Returns a file's size in bytes.

        Raises:
            OSError: There is no such file, or the store cannot be accessed.
        """
        with _store(self._url) as gfile:
            return int(gfile.stat(self._url).length)

    def modified(self) -> float:
        """Returns the time of the last write, in seconds since 1970.

        Raises:
            OSError: There is no such file, or the store cannot be accessed.
        """
        with _store(self._url) as gfile:
            return float(gfile.stat(self._url).mtime_nsec) / 1e9

    def iterdir(self) -> Iterator[RemotePath]:
        """Returns an iterator over the entries of a folder, sorted by name.

        Raises:
            OSError: There is no such folder, or the store cannot be accessed.
        """
        with _store(self._url) as gfile:
            names = {name.rstrip("/") for name in gfile.listdir(self._url)}
        return (self / name for name in sorted(names) if name)

    def read_bytes(self) -> bytes:
        """Returns a file's content.

        Raises:
            OSError: There is no such file, or the store cannot be accessed.
        """
        return b"".join(self.pieces(64 << 20))

    def pieces(self, most: int) -> Iterator[bytes]:
        """Yields a file's content in pieces.

        Args:
            most: Maximum size of a piece, in bytes.

        Raises:
            OSError: There is no such file, or the store cannot be accessed.
        """
        with _store(self._url) as gfile, gfile.GFile(self._url, "rb") as file:
            while piece := file.read(most):
                yield piece

    def write_bytes(self, content: bytes) -> None:
        """Writes a file, which other processes can read when this returns.

        Raises:
            OSError: The store cannot be accessed.
        """
        with _store(self._url) as gfile, gfile.GFile(self._url, "wb") as file:
            file.write(content)

    def upload(self, file: Path) -> None:
        """Uploads a local file to this path.

        Raises:
            OSError: The file is missing, or the store cannot be accessed.
        """
        with _store(self._url) as gfile:
            gfile.copy(os.fspath(file), self._url, overwrite=True)

    def unlink(self) -> None:
        """Removes a file.

        Raises:
            OSError: There is no such file, or the store cannot be accessed.
        """
        with _store(self._url) as gfile:
            gfile.remove(self._url)

    def remove(self, first: str = "") -> None:
        """Removes a folder of files as far as possible; never raises.

        Args:
            first: Name of the file to remove first. Default: any.
        """
        with contextlib.suppress(OSError):  # some stores have no empty folders
            for file in sorted(self.iterdir(), key=lambda file: file.name != first):
                file.unlink()
            with _store(self._url) as gfile:
                gfile.rmtree(self._url)


@contextlib.contextmanager
def _store(url: str) -> Iterator[Any]:
    """Yields `tf.io.gfile`; turns its exceptions into an OSError that names the URL."""
    import tensorflow as tf  # local paths must work without TensorFlow

    scheme = url.partition("://")[0]
    if scheme not in tf.io.gfile.get_registered_schemes():
        # TensorFlow itself supports gs and ram; tensorflow-io registers s3, hdfs, az and others.
        reason: object = "tensorflow-io does not know it either"
        try:
            importlib.import_module("tensorflow_io")
        except ImportError as error:
            reason = error
        # The import registers nothing with a TensorFlow release that it was not built for.
        if scheme not in tf.io.gfile.get_registered_schemes():
            raise OSError(
                f"{url}: TensorFlow alone does not support {scheme}://. tensorflow-io does, with "
                "TensorFlow 2.16: pip install 'tfhybrid[io]'. With other releases, mount the store "
                f"as a folder. Received: TensorFlow {tf.__version__}, {reason}"
            )
    try:
        yield tf.io.gfile
    except tf.errors.OpError as error:
        raise OSError(f"{url}: {error.message}") from error
