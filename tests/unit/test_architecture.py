"""Dependencies run one way: an #include or import that points up the levels fails here."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dependencies.imports import imports, included_headers, running_nodes

ROOT = Path(__file__).resolve().parents[2]

# What the files of a native folder may include besides their own folder.
NATIVE_MAY_INCLUDE = {
    "core/util": set(),
    "core/shm": {"core/util"},
    "core/compute": {"core/util"},
    "core/tier": {"core/util"},
    "core/store": {"core/util", "core/shm", "core/compute", "core/tier"},
    "core/placement": {"core/util"},
    "core/update": {"core/util", "core/shm", "core/compute", "core/store", "core/placement"},
    "core/exchange": {
        *("core/util", "core/shm", "core/compute", "core/store", "core/placement", "core/update"),
    },
    "core/passes": {
        *("core/util", "core/shm", "core/compute", "core/store", "core/placement"),
        "core/exchange",
    },
    "core/checkpoint": {"core/util", "core/shm", "core/compute", "core/store"},
    "core/engine": {
        *("core/util", "core/shm", "core/compute", "core/store", "core/placement", "core/update"),
        *("core/exchange", "core/passes"),
    },
    "core": {
        "core/placement",
        *("core/util", "core/shm", "core/compute", "core/store", "core/update"),
        *("core/checkpoint", "core/engine", "core/passes"),
    },
    "tf": {
        "core",
        *("core/util", "core/shm", "core/compute", "core/store", "core/update", "core/exchange"),
        "core/engine",
        *("tensorflow", "absl", "tsl", "Eigen", "unsupported"),
    },
}
# System headers that belong to one folder.
ONLY_IN_SHM = {"sys/mman.h", "sys/file.h", "linux/futex.h"}

# The Python package from bottom to top: a part may import those beside and below it.
# The last is the facade.
PYTHON_LEVELS = [
    {"errors", "_version", "_lazy", "_keras", "settings"},
    {"core"},
    {"file_tier", "initializers", "placement", "row_policy", "table_optimizers"},
    {"config"},
    {"ops"},
    {"distributed", "nodes"},
    {"job"},
    {"announcing", "store"},
    {"checkpoint", "data", "export", "layers", "metrics", "optimizers", "serving", "stream"},
    {"callbacks", "models"},
    {"cli"},
    {"__init__"},
]
ONLY_IN_DISTRIBUTED = {"horovod"}
PRIVATE_MODULES = ("tensorflow.python", "keras.src")

LONGEST_FILE = 500


def package_files() -> Iterator[Path]:
    return (ROOT / "tfhybrid").rglob("*.py")


# Folders are written as paths, by which `scripts/test --changed` sees that these tests read them.
def python_files() -> Iterator[Path]:
    yield ROOT / "setup.py"
    for folder in (ROOT / "tfhybrid", ROOT / "tests", ROOT / "benchmarks", ROOT / "examples"):
        yield from folder.rglob("*.py")


def native_files(folder: Path) -> Iterator[Path]:
    yield from folder.rglob("*.h")
    yield from folder.rglob("*.cc")


def imported_modules(file: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or in a function, as an absolute dotted name."""
    nodes = running_nodes(ast.parse(file.read_text()))
    for each in imports(nodes, file.relative_to(ROOT).parent.parts):
        yield each.module


def included_folders(file: Path) -> Iterator[str]:
    for header in included_headers(file.read_text()):
        if "/" in header:
            yield header if header in ONLY_IN_SHM else header.rpartition("/")[0]


def part_of(module: str) -> str:
    """The part of the package that a dotted name belongs to; a name of the facade is `__init__`."""
    name = (*module.split("."), "__init__")[1]
    is_part = any((ROOT / "tfhybrid" / path).exists() for path in (name, f"{name}.py"))
    return name if is_part else "__init__"


def level_of(part: str) -> int:
    levels = [level for level, parts in enumerate(PYTHON_LEVELS) if part in parts]
    assert levels, f"tfhybrid/{part} has no place in PYTHON_LEVELS"
    return levels[0]


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
    part = file.relative_to(ROOT / "tfhybrid").with_suffix("").parts[0]
    for module in imported_modules(file):
        if module.split(".")[0] in ONLY_IN_DISTRIBUTED:
            assert part == "distributed", f"only tfhybrid/distributed imports {module}"
        if module.split(".")[0] == "tfhybrid":
            imported = part_of(module)
            assert level_of(imported) <= level_of(part), f"{part} may not import {imported}"


def test_parts_do_not_import_each_other_in_circles():
    """Not for type checkers alone either: who must name what lies above names a protocol."""
    imported: dict[str, set[str]] = {}
    for file in package_files():
        part = file.relative_to(ROOT / "tfhybrid").with_suffix("").parts[0]
        nodes = ast.walk(ast.parse(file.read_text()))
        for each in imports(nodes, file.relative_to(ROOT).parent.parts):
            if each.module.split(".")[0] == "tfhybrid":
                imported.setdefault(part, set()).add(part_of(each.module))
    imported.pop("__init__")  # the facade
    order = graphlib.TopologicalSorter(
        {part: others - {part, "__init__"} for part, others in imported.items()}
    )
    order.prepare()  # raises CycleError, which names the circle


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


def test_files_are_short():
    files = [
        *python_files(),
        *native_files(ROOT / "custom_ops"),
        *native_files(ROOT / "tests/native"),
    ]
    lengths = {file.relative_to(ROOT): len(file.read_text().splitlines()) for file in files}
    assert {file: lines for file, lines in lengths.items() if lines > LONGEST_FILE} == {}
