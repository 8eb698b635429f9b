"""Figures about names that more than one file or class has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from tests.support.counts.tree import Tree

_CORE_CLASS = re.compile(r"^\s*(?:class|struct|enum class)\s+(\w+)[^;{()]*\{", re.MULTILINE)


def file_names_twice(tree: Tree) -> list[str]:
    """Returns the names that several modules of the package have."""
    stems = [(PurePosixPath(module.path).stem, module.at(1)) for module in tree.modules]
    return _twice((stem, place) for stem, place in stems if stem not in ("__init__", "__main__"))


def class_names_twice(tree: Tree) -> list[str]:
    """Returns the names that several classes at the top of modules have."""
    return _twice(
        (node.name, module.at(node.lineno))
        for module in tree.modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    )


def core_class_names_twice(tree: Tree) -> list[str]:
    """Returns the names that several classes in the headers of the core have."""
    return _twice(
        (match[1], header)
        for header in tree.files("custom_ops/core", "*.h")
        for match in _CORE_CLASS.finditer(tree.text(header))
    )


def _twice(named: Iterable[tuple[str, str]]) -> list[str]:
    places: dict[str, list[str]] = {}
    for name, place in named:
        places.setdefault(name, []).append(place)
    return [f"{name}: {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1]
