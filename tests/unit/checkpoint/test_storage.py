"""Local folders and what TensorFlow reaches by URL behave alike; `ram://` is TensorFlow's own."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.remote_path import RemotePath


@pytest.fixture(params=["local", "remote"])
def directory(request, tmp_path) -> storage.Location:
    url = f"ram://{uuid.uuid4().hex}/checkpoints"
    return storage.location(tmp_path / "checkpoints" if request.param == "local" else url)


def test_urls_are_told_from_paths(tmp_path):
    assert storage.location("a/b") == Path("a/b")
    assert storage.location(tmp_path) == tmp_path
    url = storage.location("s3://bucket/a/")
    assert isinstance(url, RemotePath)
    assert (str(url / "b"), url.name, str(url.parent)) == ("s3://bucket/a/b", "a", "s3://bucket")
    assert storage.location(url) == url
    assert len({url, RemotePath("s3://bucket/a")}) == 1


@pytest.mark.parametrize("size", [0, 1, 9_000_000])
def test_what_is_written_is_read(directory, size):
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    folder = storage.begin(directory / "step-1")
    storage.write(folder / "file", content)
    storage.finish(folder, directory / "step-1")
    path = directory / "step-1" / "file"
    assert storage.size(path) == size
    assert storage.modified(path) >= 0  # ram:// knows no times
    assert storage.read(path).tobytes() == content
    assert b"".join(piece.tobytes() for piece in storage.pieces(path)) == content
    assert [entry.name for entry in (directory / "step-1").iterdir()] == ["file"]
    assert (path.is_file(), path.is_dir(), path.parent.is_dir()) == (True, False, True)


def test_files_of_other_programs_arrive(directory):
    folder = storage.begin(directory / "step-1")
    with storage.local_file(folder / "file") as path:
        assert path.name == "file"
        path.write_bytes(b"rows")
    assert storage.read(folder / "file").tobytes() == b"rows"


def test_what_is_missing_is_an_error_of_the_system(directory):
    for read in (storage.size, storage.read, lambda path: next(storage.pieces(path))):
        with pytest.raises(OSError, match="file"):
            read(directory / "file")
    assert not (directory / "file").exists()
    storage.remove(directory / "nothing")


def test_what_a_killed_process_left_is_removed(directory):
    first = storage.begin(directory / "step-1", "a")
    storage.write(first / "file", b"half")
    second = storage.begin(directory / "step-1", "b")
    assert not (second / "file").exists()
    assert isinstance(first, RemotePath) or not first.exists()


def test_a_folder_is_removed_with_all_that_is_in_it(directory):
    folder = storage.begin(directory / "step-1")
    storage.write(folder / "file", b"1")
    storage.remove(folder)
    assert not (folder / "file").exists()


def test_a_store_that_nobody_knows_is_an_error_that_names_it():
    with pytest.raises(OSError, match="nosuch://bucket/file"):
        RemotePath("nosuch://bucket/file").read_bytes()


def test_a_file_system_that_tensorflow_does_not_know_wants_tensorflow_io(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_io", None)  # as if it were not installed
    with pytest.raises(OSError, match=r"hosts://bucket/a: .* pip install 'tfhybrid\[io\]'"):
        storage.location("hosts://bucket/a").is_dir()
