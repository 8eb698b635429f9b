"""The files of a repository and their texts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePosixPath

# What is built stands for its sources.
BUILT_FROM = {
    "build/fuzz": ("custom_ops/core", "tests/native/fuzz"),
    "build/image": ("custom_ops", "docker", "examples", "tfhybrid"),
    "build/native": ("custom_ops/core", "tests/native"),
    "tfhybrid/ops/libtfhybrid_core.so": ("custom_ops/core",),
    "tfhybrid/ops/libtfhybrid_ops.so": ("custom_ops/core", "custom_ops/tf"),
}


class Repository:
    """The files of a working tree; paths are relative to its root.

    Args:
        root: The working tree.
        files: Its files. A deleted one may be among them: its text is empty.
    """

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        self.files = frozenset(files)
        self._root = root
        self._folders: dict[str, set[str]] = {}
        self._same_name: dict[str, set[str]] = {}
        for file in self.files:
            path = PurePosixPath(file)
            self._same_name.setdefault(path.name, set()).add(file)
            for folder in [*path.parents][:-1]:
                self._folders.setdefault(str(folder), set()).add(file)

    @cache  # noqa: B019 - a repository lives as long as the program
    def text(self, file: str) -> str:
        """Returns the text of a file; what is not UTF-8 in it is replaced."""
        path = self._root / file
        return path.read_text(errors="replace") if path.is_file() else ""

    def exists(self, file: str) -> bool:
        """Whether a file is there, and not deleted."""
        return (self._root / file).is_file()

    def at(self, path: str) -> set[str]:
        """Returns the file at a path, all files of a folder, or the sources of what is built."""
        for built, sources in BUILT_FROM.items():
            if path == built or path.startswith(f"{built}/"):
                return {file for source in sources for file in self._folders.get(source, ())}
        return {path} & self.files or self._folders.get(path, set())

    def called(self, word: str) -> set[str]:
        """Returns the files that a word of a string may mean: a path, or a name like `train.py`."""
        if "/" in word:
            return self.at(word)
        return self._same_name.get(word, set()) if "." in word else set()


def files_of(root: Path) -> set[str]:
    """Returns the files that git tracks or would add."""
    return _git(root, "ls-files", "--cached", "--others", "--exclude-standard")


def changed_files(root: Path, since: str) -> set[str]:
    """Returns the files that differ from a revision, the deleted and the new ones too."""
    differing = _git(root, "diff", "--name-only", "--no-renames", since, "--")
    return differing | _git(root, "ls-files", "--others", "--exclude-standard")


def _git(root: Path, *arguments: str) -> set[str]:
    command, *options = arguments
    done = subprocess.run(
        ["git", "-C", root, command, "-z", *options], stdout=subprocess.PIPE, text=True, check=True
    )
    return {*done.stdout.split("\0")} - {""}
