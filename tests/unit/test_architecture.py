"""Dependencies run one way: an #include or import that points up the levels fails here."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.architecture.rooms import (
    NATIVE_MAY_INCLUDE,
    ROOT,
    graph,
    graph_of_rooms,
    imported_modules,
    level_of,
    module_file,
    package_files,
    room_of,
)
from tests.support.dependencies.imports import included_headers
from tests.unit.documentation import architecture_page

# System headers that belong to one folder.
ONLY_IN_SHM = {"sys/mman.h", "sys/file.h", "linux/futex.h"}
ONLY_IN_DISTRIBUTED = {"horovod"}
PRIVATE_MODULES = ("tensorflow.python", "keras.src")

MOST_FILES_OF_A_ROOM = 20
LONGEST_FILE = 500


# Folders are written as paths, by which `scripts/test --changed` sees that these tests read them.
def python_files() -> Iterator[Path]:
    yield ROOT / "setup.py"
    for folder in (ROOT / "tfhybrid", ROOT / "tests", ROOT / "benchmarks", ROOT / "examples"):
        yield from folder.rglob("*.py")


def native_files(folder: Path) -> Iterator[Path]:
    yield from folder.rglob("*.h")
    yield from folder.rglob("*.cc")


def included_folders(file: Path) -> Iterator[str]:
    for header in included_headers(file.read_text()):
        if "/" in header:
            yield header if header in ONLY_IN_SHM else header.rpartition("/")[0]


@pytest.mark.parametrize(
    "file", sorted(native_files(ROOT / "custom_ops")), ids=lambda file: file.name
)
def test_native_includes_point_down(file: Path):
    folder = file.relative_to(ROOT / "custom_ops").parent.as_posix()
    allowed = NATIVE_MAY_INCLUDE[folder] | {folder}
    ours_or_foreign = {"core", "tf", "tensorflow", "absl", "tsl", "Eigen", "unsupported"}
    for included in included_folders(file):
        if included in ONLY_IN_SHM:
            assert folder == "core/shm", f"{included} belongs to core/shm"
        elif included.split("/")[0] in ours_or_foreign:
            roots = {included, included.split("/")[0]} if folder == "tf" else {included}
            assert roots & allowed, f"{folder} may not include {included}"


@pytest.mark.parametrize(
    "file", sorted(package_files()), ids=lambda file: file.relative_to(ROOT).as_posix()
)
def test_package_imports_point_down(file: Path):
    for module in imported_modules(file):
        if module.split(".")[0] in ONLY_IN_DISTRIBUTED:
            assert room_of(file) == "distributed", f"only tfhybrid/distributed imports {module}"
        imported = module_file(module)
        if imported is not None and file.name != "__init__.py" != imported.name:
            mine, theirs = room_of(file), room_of(imported)
            assert level_of(theirs) <= level_of(mine), f"{mine} may not import {theirs}"


@pytest.mark.parametrize("depth", [1, 2])
def test_rooms_do_not_import_each_other_in_circles(depth: int):
    """Imports for type checkers count: who must name what lies above names a protocol."""
    graphlib.TopologicalSorter(graph_of_rooms(depth)).prepare()  # CycleError names the circle


def test_files_do_not_import_each_other_in_circles():
    graphlib.TopologicalSorter(graph()).prepare()


def test_rooms_are_small():
    files: dict[str, int] = {}
    for file in package_files():
        if file.name != "__init__.py":
            files[room_of(file)] = files.get(room_of(file), 0) + 1
    assert {room: n for room, n in files.items() if n > MOST_FILES_OF_A_ROOM} == {}


def test_the_page_has_the_rooms():
    """python -m tests.unit.documentation.architecture_page writes it."""
    page = architecture_page.PAGE.read_text()
    assert architecture_page.written(page) == page


def test_private_modules_are_not_imported():
    offenders = [
        f"{file.relative_to(ROOT)}: {module}"
        for file in python_files()
        for module in imported_modules(file)
        if module.startswith(PRIVATE_MODULES)
    ]
    assert offenders == []


def test_package_never_prints():
    offenders = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in package_files()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print"
    ]
    assert offenders == []


def test_no_clock_that_may_jump_is_read():
    """Of a time that an administrator or a time server may set nothing depends."""
    jumping = ("time.time(", "datetime.now", "system_clock", "CLOCK_REALTIME", "gettimeofday")
    files = [*package_files(), *native_files(ROOT / "custom_ops")]
    texts = {file.relative_to(ROOT): file.read_text() for file in files}
    # Events bear the time of day: how old they are, which is told and decides nothing, needs it.
    del texts[Path("tfhybrid/stream/weights/wall_clock.py")]
    # A picture of several hosts has one clock; it is read once.
    del texts[Path("custom_ops/core/util/phase_times.cc")]
    assert [
        (file, clock) for file, text in texts.items() for clock in jumping if clock in text
    ] == []


def test_native_code_runs_with_an_old_standard_library():
    """A wheel compiled on Debian 11 must get the tag manylinux_2_27: docs/versions.md."""
    too_new = re.compile(r"<(filesystem|condition_variable)>|std::[io]?stringstream \w+;")
    assert [
        (file.relative_to(ROOT), match[0])
        for file in native_files(ROOT / "custom_ops")
        for match in too_new.finditer(file.read_text())
    ] == []


def test_files_are_short():
    files = [
        *python_files(),
        *native_files(ROOT / "custom_ops"),
        *native_files(ROOT / "tests/native"),
    ]
    lengths = {file.relative_to(ROOT): len(file.read_text().splitlines()) for file in files}
    assert {file: lines for file, lines in lengths.items() if lines > LONGEST_FILE} == {}
