"""The files that a source file names: scripts it runs, pages it reads, libraries it loads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from tests.support.dependencies.imports import dotted_name

Paths = Mapping[str, PurePosixPath]


def path_of(node: ast.AST, known: Paths) -> PurePosixPath | None:
    """Returns the path that an expression like `Path(__file__).parent / "jobs"` gives, if it does.

    Args:
        node: The expression.
        known: The paths that names stand for. `__file__` is one of them.
    """
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=str(part))):
            return (base := path_of(left, known)) and base / part
        case ast.Call(func=ast.Name(id="Path"), args=[ast.Name(id="__file__")]):
            return known["__file__"]
        case ast.Call(func=ast.Attribute(value=value, attr="resolve")):
            return path_of(value, known)
        case ast.Call(
            func=ast.Attribute(value=value, attr="with_name"), args=[ast.Constant(value=str(part))]
        ) if base := path_of(value, known):
            return base.parent / part
        case ast.Attribute(value=value, attr="parent") if base := path_of(value, known):
            return base.parent
        case ast.Subscript(
            value=ast.Attribute(value=value, attr="parents"), slice=ast.Constant(value=int(number))
        ) if (base := path_of(value, known)) and number < len(base.parents):
            return base.parents[number]
    return known.get(dotted_name(node))


def constants(tree: ast.Module, known: Paths) -> dict[str, PurePosixPath]:
    """The paths that a file gives names to at its top, as in `ROOT = Path(__file__).parents[2]`."""
    found: dict[str, PurePosixPath] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if path := path_of(value, {**known, **found}):
                    found[name] = path
    return found


def mentions(tree: ast.AST, known: Paths) -> Iterator[str | PurePosixPath]:
    """The paths that a file uses, and its strings but for docstrings.

    Giving a folder a name does not use it: `JOBS / "endless.py"` uses one of its files, any other
    mention of `JOBS` all of them.
    """
    ahead = [tree]
    for node in ahead:  # which grows meanwhile
        if isinstance(node, ast.expr) and (path := path_of(node, known)) is not None:
            yield path
        elif isinstance(node, ast.Constant):
            yield from [node.value] if isinstance(node.value, str) else []
        elif not _is_docstring(node) and not _is_definition(node, known):
            ahead += ast.iter_child_nodes(node)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_definition(node: ast.AST, known: Paths) -> bool:
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
        return False
    name = node.targets[0].id
    return name in known and path_of(node.value, known) == known[name]


def words(text: str) -> Iterator[str]:
    """What in a string could be a path: `python examples/demo.py` has two words."""
    yield from (word.strip("/") for word in re.split(r"[\s'\"=:;,(){}]+", text) if word.strip("/."))
