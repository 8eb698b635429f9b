"""`tfhybrid new`: a project to begin with, in a directory of its own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from tfhybrid.cli.terminal.console import plain, show
from tfhybrid.errors import ConfigError

# setup.py copies the project of the repository beside this file when it makes a wheel.
_PLACES = (
    Path(__file__).with_name("project"),
    Path(__file__).resolve().parents[2] / "examples" / "project",
)
# A run in the project of the repository leaves these files; pip compiles what it installs.
_LEFT_BY_RUNS = {".parquet", ".jsonl", ".pyc"}
_NAME_IN_FILES = "click-model"
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_SHOWN_FILES = 5
_NEXT = ("python data/make.py", "launch/one_host 2 tfhybrid train model.yaml")


class _File(NamedTuple):
    """A file to write.

    Attributes:
        path: Path in the project.
        content: Bytes of the file.
        runs: Whether the file is a script to execute.
    """

    path: Path
    content: bytes
    runs: bool


def new(
    directory: Annotated[Path, typer.Argument(help="Directory to write; empty or absent.")],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of job, image and Kubernetes objects; default: the directory's.",
        ),
    ] = None,
) -> None:
    """Write a project that trains as it is.

    It has data, a model, launch scripts, dashboards and continuous integration. Its README takes
    ten minutes, and says how to put in a model and files of your own. Nothing is overwritten.

    $ tfhybrid new clicks
    """
    chosen = _name_of(directory) if name is None else name
    if not _NAME.fullmatch(chosen):
        raise ConfigError(
            "The name must have at most 40 lowercase letters, digits and hyphens, and begin with a "
            f"letter, since Kubernetes allows no others; choose one by --name. Received: {chosen!r}"
        )
    _require_empty(directory)
    files = _project(chosen)
    _write(directory, files)
    for file in files:
        show(plain(str(directory / file.path)))
    show("")
    show("README.md describes the project. Next:")
    for command in (f"cd {shlex.quote(str(directory))}", *_NEXT):
        show(plain(f"  {command}"))


def _name_of(directory: Path) -> str:
    """Returns the directory's name with hyphens for all that a name may not contain."""
    return re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")


def _require_empty(directory: Path) -> None:
    if directory.is_symlink() or directory.exists():
        if not directory.is_dir():
            raise ConfigError(f"{directory} must be a directory. Received: a file")
        if names := sorted(each.name for each in directory.iterdir()):
            others = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
            raise ConfigError(
                f"{directory} must be empty, since `tfhybrid new` overwrites nothing. "
                f"Received: {', '.join(names[:_SHOWN_FILES])}{others}"
            )


def _project(name: str) -> list[_File]:
    """Returns the files of the project under a name, in the order of their paths.

    Raises:
        ConfigError: The installation lacks them.
    """
    root = next((each for each in _PLACES if each.is_dir()), None)
    if root is None:
        raise ConfigError(
            "This installation lacks the files of the project; install tfhybrid again. "
            f"Received: none of {', '.join(map(str, _PLACES))}"
        )
    files = []
    for each in sorted(root.rglob("*")):
        path = each.relative_to(root)
        if each.is_dir() or path.parts[0] == "output" or each.suffix in _LEFT_BY_RUNS:
            continue
        content = each.read_bytes().replace(_NAME_IN_FILES.encode(), name.encode())
        files.append(_File(path, content, os.access(each, os.X_OK)))
    return files


def _write(directory: Path, files: list[_File]) -> None:
    """Writes all files, or removes what it has written."""
    existed = directory.is_dir()
    try:
        for file in files:
            target = directory / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            if file.runs:
                target.chmod(target.stat().st_mode | 0o111)
    except BaseException:
        for each in directory.iterdir() if directory.is_dir() else ():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        if directory.is_dir() and not existed:
            directory.rmdir()
        raise
