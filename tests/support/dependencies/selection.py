"""Chooses the tests that changes can reach, for `scripts/test --changed` and `--of`.

    python -m tests.support.dependencies.selection (--since REVISION | --of FILE) SUITE...

Prints a line `SUITE<tab>FILE` for each file of tests to run, and `native<tab>PATTERN` for ctest.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from tests.support.dependencies.graph import Graph
from tests.support.dependencies.native import fuzzers
from tests.support.dependencies.repository import Repository, changed_files, files_of

PYTHON_SUITES = ("unit", "parallel", "integration", "stream", "ray", "image", "soak")
# Whatever is built or installed depends on these, so all tests do.
BUILD = {
    "custom_ops/CMakeLists.txt",
    *("pyproject.toml", "setup.py", "requirements/versions.txt", "requirements/hashes.txt"),
    *("scripts/environment", "scripts/horovod", "scripts/install"),
}


@dataclasses.dataclass(frozen=True)
class Selection:
    """The tests that changes can reach.

    Args:
        chosen: The files to run, by suite.
        total: How many files each suite has.
        unreached: The changed files that no test of any suite depends on.
    """

    chosen: dict[str, list[str]]
    total: dict[str, int]
    unreached: list[str]


def select(graph: Graph, changed: Collection[str]) -> Selection:
    """Returns the tests that depend on changed files."""
    suites = _suites(graph.repository)
    native_build = BUILD | _native_build(graph.repository)
    chosen: dict[str, list[str]] = {}
    reached: set[str] = set()
    for suite, tests in suites.items():
        build = BUILD if suite in PYTHON_SUITES else native_build
        chosen[suite] = []
        for test in tests:
            if found := (graph.reach(test) | build) & {*changed}:
                reached |= found
                chosen[suite].append(test)
    total = {suite: len(tests) for suite, tests in suites.items()}
    return Selection(chosen, total, sorted({*changed} - reached))


def _suites(repository: Repository) -> dict[str, list[str]]:
    """The files of each suite. Fuzzers are in `native`, too: it replays their corpora."""
    files = sorted(filter(repository.exists, repository.files))
    suites = {
        suite: [file for file in files if re.match(rf"tests/{suite}/(.*/)?test_\w+\.py$", file)]
        for suite in PYTHON_SUITES
    }
    fuzz = sorted(fuzzers(repository))
    native = [file for file in files if re.match(r"tests/native/(.*_test|soak/\w+)\.cc$", file)]
    return {"native": [*native, *fuzz], **suites, "fuzz": fuzz}


def _native_build(repository: Repository) -> set[str]:
    """What CMake reads, and gives to compiler and linker, beside the sources."""
    read = re.compile(r"(custom_ops|tests/native)/(.*/)?(CMakeLists\.txt|\w+\.map|plain_loops\.h)$")
    return {*filter(read.match, repository.files)}


def ctest_pattern(repository: Repository, files: Collection[str]) -> str:
    """Returns the regular expression of the names that ctest knows the tests of files by."""
    suites, programs = set(), set()
    for file in files:
        macros = r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)"
        suites |= {*re.findall(macros, repository.text(file), re.MULTILINE)}
        if file in fuzzers(repository):
            programs.add(f"fuzz_replay_{PurePosixPath(file).stem}")
        elif file.startswith("tests/native/soak/"):
            programs.add(PurePosixPath(file).stem)
    # Tests are called PREFIX/SUITE.TEST/PARAMETER or SUITE/TYPE.TEST.
    names = [f"(.*/)?({'|'.join(sorted(suites))})[./]"] if suites else []
    names += [f"({'|'.join(sorted(programs))})$"] if programs else []
    return "|".join(f"^{each}" for each in names)


def report(selection: Selection, asked: Collection[str], subject: str) -> Iterator[str]:
    """Says in a few lines what was chosen.

    Args:
        selection: The chosen tests.
        asked: Suites that the caller asked for.
        subject: Beginning of the first line, such as "The changes reach".
    """
    counts = {
        suite: f"{len(files)} of {selection.total[suite]} files of {suite}"
        for suite, files in selection.chosen.items()
        if files
    }
    run = [count for suite, count in counts.items() if suite in asked]
    yield f"{subject} {', '.join(run) or 'no test of ' + ', '.join(asked)}."
    others = [count for suite, count in counts.items() if suite not in asked and suite != "fuzz"]
    if others:
        yield f"Also reached, but not asked for: {', '.join(others)}"
    if selection.unreached:
        yield f"No test reaches: {', '.join(selection.unreached)}"


def main(root: Path, option: str, value: str, *suites: str) -> None:
    """Prints the tests to run on standard output, and what was chosen on standard error.

    Args:
        root: Root folder of the working tree.
        option: `--since` or `--of`.
        value: Revision for `--since`, file for `--of`.
        *suites: Suites to choose from.
    """
    try:
        files = files_of(root)
        changed = {_path(root, value)} if option == "--of" else changed_files(root, value)
    except subprocess.CalledProcessError:  # git has said why
        sys.exit(1)
    if option == "--of" and not changed <= files:
        sys.exit(f"{value} is not a file of the repository. Paths begin at its root.")
    repository = Repository(root, files | changed)
    selection = select(Graph(repository), changed)
    asked = ["native" if suite.startswith("--") else suite for suite in suites]
    if unknown := {*asked} - {*selection.total}:
        sys.exit(f"scripts/test has no suite {', '.join(sorted(unknown))}.")
    subject = f"A change of {value} reaches" if option == "--of" else "The changes reach"
    lines = report(selection, asked, subject) if changed else [f"Nothing differs from {value}."]
    sys.stderr.writelines(f"{line}\n" for line in lines)
    _print_chosen(repository, selection)


def _path(root: Path, file: str) -> str:
    """Returns a file as git names it, from the root of the repository."""
    return os.path.relpath(root / file, root)


def _print_chosen(repository: Repository, selection: Selection) -> None:
    for suite, files in selection.chosen.items():
        if files and suite == "native":
            sys.stdout.write(f"native\t{ctest_pattern(repository, files)}\n")
        else:
            sys.stdout.writelines(f"{suite}\t{file}\n" for file in files)


if __name__ == "__main__":
    main(Path.cwd(), *sys.argv[1:])
