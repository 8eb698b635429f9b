"""`tfhybrid new`: what it writes, and what it refuses to write over."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tfhybrid.cli.main import app

PROJECT = Path(__file__).resolve().parents[3] / "examples" / "project"
LEFT_BY_RUNS = ("output", "__pycache__")


def new(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["new", *arguments])


def files_of(folder: Path) -> dict[str, bytes]:
    files = {each.relative_to(folder): each for each in folder.rglob("*") if each.is_file()}
    return {
        str(path): file.read_bytes()
        for path, file in files.items()
        if not {*path.parts} & {*LEFT_BY_RUNS} and path.suffix not in (".parquet", ".jsonl")
    }


def test_it_writes_the_project_under_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "My ads"
    done = new(str(folder))
    assert done.exit_code == 0, done.output
    expected = {
        path: content.replace(b"click-model", b"my-ads")
        for path, content in files_of(PROJECT).items()
    }
    assert files_of(folder) == expected
    listed, next_steps = done.stdout.split("\n\n")
    assert listed.splitlines() == sorted(str(folder / path) for path in expected)
    cd, *commands = next_steps.splitlines()[1:]
    assert shlex.split(cd) == ["cd", str(folder)]
    readme = (folder / "README.md").read_text()
    assert len(commands) == 2
    assert all(command.strip() in readme for command in commands)
    runs = {path for path in expected if os.access(folder / path, os.X_OK)}
    assert runs == {"check", *(f"launch/{name}" for name in ("hosts", "one_host", "slurm"))} | {
        "launch/by_slurm/ssh"
    }


def test_what_a_run_leaves_in_the_repository_is_not_written(tmp_path: Path) -> None:
    left = PROJECT / "output" / f"of-a-test-{os.getpid()}"
    left.mkdir(parents=True)
    try:
        assert new(str(tmp_path / "ads")).exit_code == 0
    finally:
        left.rmdir()
        if not any(left.parent.iterdir()):
            left.parent.rmdir()
    assert not (tmp_path / "ads" / "output").exists()


def test_an_empty_directory_is_filled_and_another_left_alone(tmp_path: Path) -> None:
    assert new(str(tmp_path), "--name", "ads").exit_code == 0
    before = files_of(tmp_path)
    (tmp_path / "train.py").write_text("mine")
    again = new(str(tmp_path), "--name", "ads")
    assert again.exit_code == 1
    assert "Received: .dockerignore, .github, .gitignore, Dockerfile, README.md and" in again.stderr
    assert files_of(tmp_path) == before | {"train.py": b"mine"}
    refused = new(str(tmp_path / "train.py"))
    assert (refused.exit_code, "must be a directory" in refused.stderr) == (1, True)


@pytest.mark.parametrize("name", ["", "2nd", "My", "a_b", "a-", "a" * 41, "a\nb"])
def test_a_name_that_kubernetes_would_refuse(tmp_path: Path, name: str) -> None:
    refused = new(str(tmp_path / "ads"), "--name", name)
    assert refused.exit_code == 1
    assert "choose one by --name. Received:" in refused.stderr
    assert not (tmp_path / "ads").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_nothing_is_left_when_it_fails(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "ads"
    if exists:
        folder.mkdir()
    command = [sys.executable, "-m", "tfhybrid.cli", "new", str(folder)]
    full = "ulimit -f 16 && exec " + shlex.join(command)  # the dashboard is larger than 16 KB
    done = subprocess.run(["bash", "-c", full], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert [each.name for each in tmp_path.rglob("*")] == ["ads"] * exists
