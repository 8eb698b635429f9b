"""The source files that the figures are counted in, each read and parsed once."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

TOP = "(top)"


@dataclasses.dataclass(frozen=True, eq=False)
class Module:
    """A Python module of the package.

    Attributes:
        path: Path of the file, from the root of the repository.
        text: Source of the module.
    """

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the module."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    @property
    def is_face(self) -> bool:
        """Whether the module is the `__init__.py` of a package."""
        return self.path.endswith("/__init__.py")

    def room(self, depth: int = 2) -> str:
        """Returns the folder below `tfhybrid`, at most `depth` levels deep, or `TOP`."""
        return "/".join(self.path.split("/")[1:-1][:depth]) or TOP

    def at(self, line: int) -> str:
        """Returns a line of the module as `FILE:LINE`."""
        return f"{self.path}:{line}"

    def documented(self) -> Iterator[tuple[Documented, str]]:
        """Yields the module, its classes and its functions with their cleaned docstrings."""
        for node in self.nodes:
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                yield node, text


Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Tree:
    """The working tree of a repository.

    Args:
        root: Root folder of the tree.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def modules(self) -> list[Module]:
        """The modules of the package `tfhybrid`."""
        return [Module(file, self.text(file)) for file in self.files("tfhybrid", "*.py")]

    def files(self, folder: str, pattern: str) -> list[str]:
        """Returns the files of a folder and its subfolders, as paths from the root."""
        paths = sorted((self.root / folder).rglob(pattern))
        return [path.relative_to(self.root).as_posix() for path in paths if path.is_file()]

    def text(self, file: str) -> str:
        """Returns the text of a file."""
        return (self.root / file).read_text()

    def has(self, path: str) -> bool:
        """Returns whether there is a file or folder at a path."""
        return (self.root / path).exists()
