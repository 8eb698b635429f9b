"""What C++ files and scripts depend on."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from tests.support.dependencies.imports import included_headers
from tests.support.dependencies.repository import Repository

INCLUDE_FOLDERS = ("custom_ops", "tests/native")
FUZZ = "tests/native/fuzz"


class NativeGraph:
    """The include graph. A header leads to the sources that implement it, too."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._fuzzers = fuzzers(repository)
        self._implementations: dict[str, set[str]] = {}
        for file in repository.files:
            if file.startswith("custom_ops/") and file.endswith(".cc"):
                for header in self._implemented(file):
                    self._implementations.setdefault(header, set()).add(file)

    def uses(self, file: str) -> set[str]:
        """Returns what a source or header depends on directly."""
        text, folder = self._repository.text(file), PurePosixPath(file).parent
        used = self._included(file) | self._implementations.get(file, set())
        used |= {PurePosixPath(file).with_suffix(".cc").as_posix()} & self._repository.files
        for name in re.findall(r'\(__FILE__\)\.parent_path\(\) / "([^"]+)"', text):
            used |= self._repository.at(f"{folder}/{name}")
        if file in self._fuzzers:
            used |= self._repository.at(f"{FUZZ}/corpus/{PurePosixPath(file).stem}")
            used |= {f"{FUZZ}/replay.cc", f"{FUZZ}/guarded_mmap.cc"}
        return used

    def _included(self, file: str) -> set[str]:
        headers = included_headers(self._repository.text(file))
        paths = {f"{folder}/{header}" for folder in INCLUDE_FOLDERS for header in headers}
        return paths & self._repository.files

    def _implemented(self, file: str) -> set[str]:
        """A source without a header of its name implements those of its folder that it includes."""
        path = PurePosixPath(file)
        if path.with_suffix(".h").as_posix() in self._repository.files:
            return set()
        included = self._included(file)
        return {header for header in included if PurePosixPath(header).parent == path.parent}


def fuzzers(repository: Repository) -> set[str]:
    """Returns the sources that fuzz something: those with a corpus."""
    names = {PurePosixPath(file).parent.name for file in repository.at(f"{FUZZ}/corpus")}
    return {f"{FUZZ}/{name}.cc" for name in names} & repository.files


def script_uses(repository: Repository, file: str) -> set[str]:
    """Returns the files that a script or patch names, and the sources of what a script builds."""
    text = repository.text(file)
    if not file.endswith(".patch") and not text.startswith("#!"):
        return set()
    folders = {"build", *(each.split("/")[0] for each in repository.files if "/" in each)}
    paths = {*re.findall(rf"\b(?:{'|'.join(folders)})/[\w./-]*\w", text)}
    built = {path for path in paths if path.startswith("build/")}
    return (paths & repository.files).union(*map(repository.at, built))
