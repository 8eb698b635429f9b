from __future__ import annotations

import concurrent.futures
import tarfile

import pytest

from tfhybrid.data.archives import data_directory, unpacked
from tfhybrid.errors import DataError


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A directory of data with one archive in it, and an empty cache."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "train.csv").write_text("label,user\n1,2\n")
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "tiny.tar.xz"
    with tarfile.open(path, "w:xz") as files:
        files.add(tmp_path / "tiny", "tiny")
    monkeypatch.setenv("TFHYBRID_DATA", str(path.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_an_archive_is_unpacked_once(archive):
    first = unpacked("tiny")
    (first / "mark").touch()

    assert (first / "train.csv").read_text() == "label,user\n1,2\n"
    assert unpacked("tiny") == first
    assert (first / "mark").exists()


def test_another_archive_of_the_same_name_is_unpacked_anew(archive, tmp_path):
    first = unpacked("tiny")
    (tmp_path / "tiny" / "train.csv").write_text("changed")
    with tarfile.open(archive, "w:xz") as files:
        files.add(tmp_path / "tiny", "tiny")

    assert unpacked("tiny") != first
    assert (unpacked("tiny") / "train.csv").read_text() == "changed"


def test_unpacking_at_once_leaves_one_whole_copy(archive, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        targets = set(pool.map(unpacked, ["tiny"] * 8))

    assert len(targets) == 1
    assert len(list((tmp_path / "cache" / "tfhybrid" / "data").iterdir())) == 1


def test_a_missing_archive_is_named(archive):
    with pytest.raises(DataError, match=r"Expected the archive other\.tar\.xz\. Received: no file"):
        unpacked("other")


def test_a_missing_directory_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TFHYBRID_DATA", str(tmp_path / "nowhere"))

    with pytest.raises(DataError, match=r"TFHYBRID_DATA.*Received: no directory at .*nowhere"):
        data_directory()


@pytest.mark.parametrize("name", ["../outside.csv", "/tmp/outside.csv", "tiny/link"])
def test_what_would_lie_outside_of_an_archive_is_refused(archive, tmp_path, name):
    member = tarfile.TarInfo(name)
    if name.endswith("link"):
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(archive, "w:xz") as files:
        files.addfile(member)
    with pytest.raises(DataError, match=f"Received: .*{name!r}"):
        unpacked("tiny")
    assert list((tmp_path / "cache" / "tfhybrid" / "data").iterdir()) == []
