"""What all commands share."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import tfhybrid
from tfhybrid.cli import app
from tfhybrid.cli.terminal import console
from tfhybrid.cli.terminal.console import plain

ROOT = Path(__file__).resolve().parents[3]

# Runs command lines, and says which heavy modules came along.
SCRIPT = """
import json, sys
from typer.testing import CliRunner
from tfhybrid.cli import app
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0 and result.stdout, result.output
heavy = {"tensorflow", "horovod", "keras"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
"""


def run_python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_tensorflow_and_horovod_are_not_imported(directory: Path):
    commands = [
        ["--version"],
        ["checkpoint", "inspect", "."],
        ["checkpoint", "inspect", ".", "--table", "item", "--json"],
        ["checkpoint", "verify", ".", "--all"],
        ["checkpoint", "diff", "step-0000000001", "step-0000000003"],
        ["checkpoint", "export", ".", "item.npz", "--table", "item"],
        ["checkpoint", "export", ".", "item.parquet", "--table", "item", "--states"],
    ]
    run = run_python("-c", SCRIPT, json.dumps(commands), cwd=directory)
    assert run.returncode == 0, run.stderr


def test_runs_as_a_module(tmp_path: Path):
    run = run_python("-m", "tfhybrid.cli", "--version", cwd=tmp_path)
    assert run.stdout == f"tfhybrid {tfhybrid.__version__}\n"


def test_without_arguments_shows_the_commands():
    result = CliRunner().invoke(app, [])
    assert "checkpoint" in result.output
    result = CliRunner().invoke(app, ["checkpoint"])
    for command in ("inspect", "verify", "diff", "export", "import"):
        assert command in result.output


def test_an_error_is_one_line_on_standard_error(run, directory):
    result = run("inspect", directory, "--step", 7, status=1)
    assert result.stdout == ""
    assert result.stderr == (
        f"Error: {directory} has checkpoints of the steps [1, 3]. Received: step=7\n"
    )


def test_an_error_of_the_system_is_one_line_too(run, directory):
    result = run("export", directory, directory / "no" / "x.npz", "--table", "item", status=1)
    assert result.stderr.startswith("Error: [Errno 2]")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_directory_without_checkpoints_says_so(run, tmp_path, command):
    file, missing = tmp_path / "file", tmp_path / "missing"
    file.touch()
    for path, received in (
        (tmp_path, "a directory without checkpoints"),
        (file, "a file"),
        (missing, "a path that does not exist"),
    ):
        error = f"Error: {path} has no checkpoint. Received: {received}\n"
        assert run(command, path, status=1).stderr == error


def test_each_line_of_an_error_is_a_line(monkeypatch):
    shown = Console(file=io.StringIO())
    monkeypatch.setattr(console, "_errors", shown)
    console.show_error("a.yaml:3: data.label: wrong\na.yaml:9: model: \x1b[2J")
    assert shown.file.getvalue() == (
        "Error: a.yaml:3: data.label: wrong\n       a.yaml:9: model: \\x1b[2J\n"
    )


def test_what_a_file_says_cannot_command_the_terminal():
    assert plain("a\x1b[2J[red]b\n").plain == "a\\x1b[2J[red]b\\n"


@pytest.mark.parametrize("command", ["plan", "store show", "checkpoint export", "data convert"])
def test_flags_are_shown_as_flags(command: str):
    shown = CliRunner().invoke(app, [*command.split(), "--help"])
    assert shown.exit_code == 0
    assert "--help" in shown.stdout
    assert "bool" not in shown.stdout
    assert not re.search(r"--(json|measure|states|replace) [A-Z<]", shown.stdout)
    assert re.search(r"--[a-z-]+ [A-Z]", shown.stdout)
