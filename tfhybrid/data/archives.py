"""Real data sets for development and tests, if this machine has them."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path

from tfhybrid import settings
from tfhybrid.data.formats.criteo import Criteo
from tfhybrid.data.formats.csv import Csv
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import DataError

FRAPPE_FEATURES = (
    "user",
    "item",
    "daytime",
    "weekday",
    "isweekend",
    "homework",
    "cost",
    "weather",
    "country",
    "city",
)


def data_directory() -> Path:
    """Returns the directory of archives: that of `TFHYBRID_DATA`, else `../shared/data`.

    The latter is relative to the working directory, or else to the source tree.

    Raises:
        DataError: There is no such directory.
    """
    if named := settings.data_directory():
        candidates = [named]
    else:
        beside = [Path.cwd().parent, Path(__file__).resolve().parents[3]]
        candidates = [parent / "shared" / "data" for parent in beside]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise DataError(
        "Real data needs the environment variable TFHYBRID_DATA or a directory ../shared/data. "
        f"Received: no directory at {' or '.join(map(str, candidates))}."
    )


def unpacked(name: str) -> Path:
    """Returns the directory with the files of the archive `<name>.tar.xz`.

    The archive is unpacked once into the user's cache directory, under its digest. Several
    processes may do so at the same time.

    Raises:
        DataError: There is no such archive, or it contains something else than files.
        OSError: The archive cannot be read or unpacked.
        tarfile.TarError, lzma.LZMAError, EOFError: The archive is damaged.
    """
    archive = data_directory() / f"{name}.tar.xz"
    if not archive.is_file():
        raise DataError(f"Expected the archive {archive.name}. Received: no file at {archive}.")
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    target = settings.cache_directory() / "tfhybrid" / "data" / f"{name}-{digest}"
    if not target.is_dir():
        _unpack(archive, target)
    return target / name


def open_frappe() -> tuple[Clicks, Clicks, Clicks]:
    """Returns the samples of the data set Frappe_x1: for training, validation and test.

    Raises:
        DataError: There is no such archive, or it is malformed.
        OSError: The archive cannot be read or unpacked.
        tarfile.TarError, lzma.LZMAError, EOFError: The archive is damaged.
    """
    directory = unpacked("frappe_x1")
    train, valid, test = (
        Csv(FRAPPE_FEATURES).read(directory / f"{part}.csv") for part in ("train", "valid", "test")
    )
    return train, valid, test


def open_movielens_stream() -> Clicks:
    """Returns the ratings of MovieLens in order of time.

    The features are `user` and `movie`. The label is 1 for a rating of at least 4.

    Raises:
        DataError: There is no such archive, or it is malformed.
        OSError: The archive cannot be read or unpacked.
        tarfile.TarError, lzma.LZMAError, EOFError: The archive is damaged.
    """
    path = unpacked("movielens-stream") / "ratings_by_time.csv"
    return Csv(("user", "movie"), label="rating", positive=4.0).read(path)


def open_criteo_head(*, bucketize: bool = False) -> Clicks:
    """Returns the first samples of Criteo's training file.

    Args:
        bucketize: Whether the numbers become features (see `Criteo`). Default false.

    Raises:
        DataError: There is no such archive, or it is malformed.
        OSError: The archive cannot be read or unpacked.
        tarfile.TarError, lzma.LZMAError, EOFError: The archive is damaged.
    """
    directory = unpacked("criteo-head8000")
    parts = ("train", "dev", "test")
    return Clicks.concatenate([Criteo(bucketize).read(directory / f"{part}.tsv") for part in parts])


def _unpack(archive: Path, target: Path) -> None:
    """Unpacks into a directory beside the target and renames it: the target is whole or absent."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        files = Path(scratch, "files")
        with tarfile.open(archive) as tar:
            _extract(tar, files)
        try:
            files.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise


def _extract(archive: tarfile.TarFile, target: Path) -> None:
    """Extracts an archive of regular files, and refuses other members and paths outside the target.

    `extractall(filter="data")` does this in Python 3.11.4 and later, but Debian 12 has 3.11.2.
    """
    root = target.resolve()
    for member in archive:
        if member.isdir():
            continue
        path = (root / member.name).resolve()
        source = archive.extractfile(member) if member.isfile() else None
        if source is None or not path.is_relative_to(root):
            raise DataError(
                f"Expected an archive of files below one folder. Received: {archive.name!r} with "
                f"{member.name!r}"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with source, path.open("wb") as file:
            shutil.copyfileobj(source, file)
