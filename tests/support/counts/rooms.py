"""Figures about the rooms of the package and the imports among them."""

from __future__ import annotations

import ast
import collections
from collections.abc import Mapping
from pathlib import PurePosixPath

from tests.support.counts.tree import TOP, Module, Tree
from tests.support.dependencies.imports import imports

MAX_FILES = 20
MAX_IMPORTS = 15

Graph = Mapping[str, set[str]]


def circles_of_files(tree: Tree) -> list[str]:
    """Returns the groups of modules that import each other."""
    return circles(_graph(tree))


def circles_of_rooms(tree: Tree, depth: int) -> list[str]:
    """Returns the groups of rooms that import each other. A module at the top is a room."""
    room_of = {module.path: _room(module, depth) for module in tree.modules}
    rooms: dict[str, set[str]] = {}
    for path, others in _graph(tree).items():
        rooms.setdefault(room_of[path], set()).update(room_of[other] for other in others)
    return circles(rooms)


def rooms_of_more_than_20_files(tree: Tree) -> list[str]:
    """Returns the rooms that have too many files."""
    sizes = collections.Counter(module.room() for module in tree.modules if not module.is_face)
    return [f"{room}: {size}" for room, size in sorted(sizes.items()) if size > MAX_FILES]


def modules_importing_more_than_15(tree: Tree) -> list[str]:
    """Returns the modules that import too many others of the package."""
    return [
        f"{module.path}: {len(others)}"
        for module in tree.modules
        if not module.is_face and len(others := _imported(module, _by_name(tree))) > MAX_IMPORTS
    ]


def environment_reads_outside_settings(tree: Tree) -> list[str]:
    """Returns the lines outside `tfhybrid/settings.py` that use the environment of the process."""
    return [
        module.at(line)
        for module in tree.modules
        if module.path != "tfhybrid/settings.py"
        for line in sorted({node.lineno for node in module.nodes if _is_environment(node)})
    ]


def circles(graph: Graph) -> list[str]:
    """Returns the groups of two or more nodes of which each reaches all others."""
    reached = {node: _reached(graph, node) for node in graph}
    groups = {
        tuple(sorted({node} | {other for other in ahead if node in reached.get(other, ())}))
        for node, ahead in reached.items()
    }
    return [" <-> ".join(group) for group in sorted(groups) if len(group) > 1]


def _reached(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph.get(ahead.pop(), set()) - reached
        reached |= new
        ahead += new
    return reached


def _graph(tree: Tree) -> dict[str, set[str]]:
    """Returns what each module imports, for type checkers too, without the faces of packages."""
    by_name = _by_name(tree)
    faces = {module.path for module in tree.modules if module.is_face}
    return {
        module.path: _imported(module, by_name) - faces
        for module in tree.modules
        if not module.is_face
    }


def _imported(module: Module, by_name: Mapping[str, str]) -> set[str]:
    """Returns the modules of the package that a module imports, as paths."""
    folder = PurePosixPath(module.path).parent.parts
    names = [each.module for each in imports(module.nodes, folder)]
    files = {by_name.get(name) or by_name.get(name.rpartition(".")[0], "") for name in names}
    return files - {"", module.path}


def _by_name(tree: Tree) -> dict[str, str]:
    return {
        module.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module.path
        for module in tree.modules
    }


def _room(module: Module, depth: int) -> str:
    room = module.room(depth)
    return module.path if room == TOP else room


def _is_environment(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv"):
            return True
        case ast.ImportFrom(module="os", names=names):
            return any(name.name in ("environ", "environb", "getenv") for name in names)
    return False
