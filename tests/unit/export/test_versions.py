"""Version folders: numbered on, complete or not there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfhybrid.checkpoint.storage import appearing
from tfhybrid.errors import ExportError
from tfhybrid.export.versions import choose, versions


def test_only_folders_named_by_a_number_are_versions(tmp_path) -> None:
    for name in ("2", "10", "007", ".11.unfinished", "best", "-3", "1.5"):
        (tmp_path / name).mkdir()
    (tmp_path / "99").write_text("a file")
    assert versions(tmp_path) == [2, 7, 10]


def test_the_next_version_follows_the_highest(tmp_path) -> None:
    assert choose(tmp_path / "new", None) == tmp_path / "new" / "1"
    for name in ("2", "10"):
        (tmp_path / name).mkdir()
    assert choose(tmp_path, None) == tmp_path / "11"
    assert choose(tmp_path, 5) == tmp_path / "5"


def test_a_version_is_not_replaced(tmp_path) -> None:
    (tmp_path / "0010").mkdir()
    with pytest.raises(ExportError, match=r"Received: 10 of \[10\]"):
        choose(tmp_path, 10)


def test_a_folder_appears_when_it_is_complete(tmp_path) -> None:
    with appearing(tmp_path / "1") as unfinished:
        (unfinished / "variables").mkdir()
        (unfinished / "variables" / "data").write_text("all")
        assert versions(tmp_path) == []
    assert (tmp_path / "1" / "variables" / "data").read_text() == "all"
    assert [entry.name for entry in tmp_path.iterdir()] == ["1"]


def test_an_exception_leaves_nothing(tmp_path) -> None:
    def write() -> None:
        with appearing(tmp_path / "1") as unfinished:
            (unfinished / "data").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_version_that_appeared_meanwhile_stays(tmp_path) -> None:
    def write() -> None:
        with appearing(tmp_path / "1") as unfinished:
            (unfinished / "data").write_text("mine")
            (tmp_path / "1").mkdir()
            (tmp_path / "1" / "data").write_text("theirs")

    with pytest.raises(OSError, match="not empty"):
        write()
    assert (tmp_path / "1" / "data").read_text() == "theirs"
    assert [entry.name for entry in tmp_path.iterdir()] == ["1"]


def test_a_killed_writer_leaves_no_version_and_the_next_one_cleans_up(tmp_path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from tfhybrid.checkpoint.storage import appearing\n"
        "with appearing(Path(sys.argv[1])) as unfinished:\n"
        "    (unfinished / 'half').write_text('')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    folder = tmp_path / "1"
    run = subprocess.run([sys.executable, "-c", script, str(folder)], check=False)
    assert run.returncode == -signal.SIGKILL
    assert versions(tmp_path) == []
    assert choose(tmp_path, None) == folder
    with appearing(folder) as unfinished:
        (unfinished / "whole").write_text("")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [
        Path("1"),
        Path("1/whole"),
    ]
