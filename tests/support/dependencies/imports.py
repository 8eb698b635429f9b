"""What a source file imports or includes, read from its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Import(NamedTuple):
    """One imported name.

    Args:
        module: What is imported, as an absolute dotted name.
        name: The name that the file knows it by.
        bound: What that name stands for: `import a.b` makes `a` stand for `a`.
    """

    module: str
    name: str
    bound: str


def running_nodes(tree: ast.AST) -> list[ast.AST]:
    """The nodes of a file without its `if TYPE_CHECKING:` blocks, which never run."""
    nodes = [tree]
    for node in nodes:  # which grows meanwhile
        nodes += [each for each in ast.iter_child_nodes(node) if not _is_for_type_checkers(each)]
    return nodes


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and dotted_name(node.test) == "TYPE_CHECKING"


def imports(nodes: Iterable[ast.AST], package: tuple[str, ...]) -> Iterator[Import]:
    """Every import of a file of this package, at its top or in a function."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                bound = alias.name if alias.asname else first
                yield Import(alias.name, alias.asname or first, bound)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                module = f"{source}.{alias.name}"
                yield Import(module, alias.asname or alias.name, module)


def dotted_name(node: ast.AST) -> str:
    """Returns `a.b.c` if that is what the node is, else an empty string."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def used_names(nodes: Iterable[ast.AST], bound: Mapping[str, str]) -> Iterator[str]:
    """What a file does with imported names: `tfhybrid.init()` uses `tfhybrid.init`.

    Args:
        nodes: The file's nodes.
        bound: What its imported names stand for.
    """
    names = [node for node in nodes if isinstance(node, ast.Attribute | ast.Name)]
    inner = {id(node.value) for node in names if isinstance(node, ast.Attribute)}
    for node in names:
        first, dot, rest = dotted_name(node).partition(".")
        if id(node) not in inner and first in bound:
            yield bound[first] + dot + rest


def lazy_names(package: str, tree: ast.Module) -> dict[str, str]:
    """The names that a package imports when they are first used, and where each comes from.

    Those are the arguments of `lazy(...)` in the package's `__init__.py`: see `tfhybrid/_lazy.py`.
    """
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted_name(node.func) == "lazy":
            sources, *modules = (values[dotted_name(each)] for each in node.args[1:])
            for name, source in ast.literal_eval(sources).items():
                module = source if source.startswith("tfhybrid.") else f"{package}.{source}"
                names[name] = f"{module}.{name}"
            for each in modules:
                names |= {name: f"{package}.{name}" for name in strings(ast.walk(each))}
    return names


def strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The strings among nodes."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def included_headers(text: str) -> list[str]:
    """The headers that a C++ file includes, as it writes them."""
    return re.findall(r'^#include ["<](.+)[">]', text, re.MULTILINE)
