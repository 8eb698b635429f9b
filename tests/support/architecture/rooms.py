"""The rooms of the package and the folders of the core, and who may import whom.

A room is a folder of `tfhybrid`, two levels deep at most; a module at the top is a room of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.dependencies.imports import imports, running_nodes

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "tfhybrid"

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

# The rooms from bottom to top: a room may import those on its line and on the lines below.
LEVELS = [
    [
        *("errors", "settings", "_deprecated", "_ending", "_horovod", "_keras", "_lazy", "_remote"),
        "_version",
    ],
    ["core"],
    ["config", "initializers", "values"],
    ["distributed", "ops", "rpc"],
    ["monitoring"],
    ["cluster", "data_nodes"],
    ["embedding_nodes"],
    ["job"],
    ["announcing", "store"],
    ["data/samples"],
    ["data/formats"],
    ["data", "features", "layers", "metrics", "optimizers"],
    ["checkpoint"],
    ["export"],
    ["stream/queues"],
    ["stream/weights"],
    ["stream/sync_unit"],
    ["stream/provider"],
    ["stream", "stream/feeding"],
    ["stream/trainer"],
    ["serving"],
    ["callbacks", "models"],
    ["planner"],
    ["cli/terminal"],
    ["cli/data"],
    ["cli/checkpoint", "cli/doctor", "cli/stream", "cli/train"],
    ["cli"],
    ["nodes", "nodes/embedding", "nodes/metadata", "data/node"],
]


def package_files() -> Iterator[Path]:
    """Yields the modules of the package."""
    return PACKAGE.rglob("*.py")


def room_of(file: Path) -> str:
    """Returns the room of a module: `stream/queues`, or its own name at the top."""
    folders = file.relative_to(PACKAGE).parts[:-1]
    return "/".join(folders[:2]) or file.stem


def module_file(dotted: str) -> Path | None:
    """Returns the file of the module that a dotted name is, or is in."""
    parts = dotted.split(".")
    if parts[0] != "tfhybrid":
        return None
    for end in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:end])
        if path.with_suffix(".py").exists():
            return path.with_suffix(".py")
        if (path / "__init__.py").exists():
            return path / "__init__.py"
    return None


def imported_modules(file: Path, *, for_type_checkers: bool = False) -> Iterator[str]:
    """Yields every module that a file imports, at its top or in a function, by its dotted name."""
    tree = ast.parse(file.read_text())
    nodes: Iterable[ast.AST] = ast.walk(tree) if for_type_checkers else running_nodes(tree)
    for each in imports(nodes, file.relative_to(ROOT).parent.parts):
        yield each.module


def files_imported_by(file: Path) -> set[Path]:
    """Returns the modules of the package that a file imports, for type checkers too.

    Faces (`__init__.py`) are left out on both sides: they import names when they are used.
    """
    named = {module_file(each) for each in imported_modules(file, for_type_checkers=True)}
    return {each for each in named if each and each.name != "__init__.py"} - {file}


def graph() -> dict[Path, set[Path]]:
    """Returns the imports among the modules of the package."""
    return {f: files_imported_by(f) for f in package_files() if f.name != "__init__.py"}


def graph_of_rooms(depth: int) -> dict[str, set[str]]:
    """Returns the imports among rooms, `depth` levels deep."""
    rooms: dict[str, set[str]] = {}
    for file, others in graph().items():
        mine = "/".join(room_of(file).split("/")[:depth])
        theirs = {"/".join(room_of(other).split("/")[:depth]) for other in others}
        rooms.setdefault(mine, set()).update(theirs - {mine})
    return rooms


def level_of(room: str) -> int:
    """Returns the level of a room, counted from the bottom."""
    levels = [level for level, rooms in enumerate(LEVELS) if room in rooms]
    assert levels, f"tfhybrid/{room} has no line in LEVELS"
    return levels[0]
