"""What Python files depend on."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath
from typing import TypeGuard

from tests.support.dependencies import paths
from tests.support.dependencies.imports import (
    dotted_name,
    imports,
    running_nodes,
    strings,
    used_names,
)
from tests.support.dependencies.modules import Modules
from tests.support.dependencies.repository import Repository

# A module that a string names, as for `python -m`; code in a string that imports the package.
_MODULE = re.compile(r"\b(?:tfhybrid|tests|benchmarks|examples)(?:\.\w+)+\.?")
_IMPORT = re.compile(r"\bimport (?:\w+, )*(tfhybrid)\b(?!\.)")


class PythonGraph:
    """The import graph, and the files that strings and paths name.

    A node is a file, or a function or class of a conftest.py, `tests/conftest.py::job`: what only
    a fixture uses is used only by the tests that ask for the fixture.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._modules = Modules(repository)
        self._known: dict[str, dict[str, PurePosixPath]] = {}

    def uses(self, node: str) -> set[str]:
        """Returns what a file, or a part of one, depends on directly."""
        file, _, name = node.partition("::")
        tree = self._part(file, name)
        nodes = running_nodes(tree) if self._parts(file) else self._modules.nodes(file)
        bound = {each.name: each.bound for each in self._modules.imports(file)}
        used = self._mentioned(file, tree) | self._loaded_by_name(file, nodes)
        for each in imports(nodes, PurePosixPath(file).parent.parts):
            used |= self._modules.run_by(each.module, file, whole=False)
        for used_name in used_names(nodes, bound):
            used |= self._modules.run_by(used_name, file, whole=True)
        used |= {f"{folder}/conftest.py" for folder in PurePosixPath(file).parents}
        used &= self._repository.files
        return used | self._parts_used(nodes, used)

    def _parts(self, file: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
        """What a conftest.py defines for those who ask for it."""
        if PurePosixPath(file).name != "conftest.py":
            return {}
        return {node.name: node for node in self._modules.tree(file).body if _is_asked_for(node)}

    def _part(self, file: str, name: str) -> ast.AST:
        parts, tree = self._parts(file), self._modules.tree(file)
        rest = [node for node in tree.body if node not in parts.values()]
        return parts[name] if name else ast.Module(rest, [])

    def _parts_used(self, nodes: list[ast.AST], files: set[str]) -> set[str]:
        """A fixture is asked for by an argument or in a string, the rest by its name."""
        words = {node.arg for node in nodes if isinstance(node, ast.arg)} | {*strings(nodes)}
        words |= {node.id for node in nodes if isinstance(node, ast.Name)}
        words |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        words |= {node.name for node in nodes if isinstance(node, ast.alias)}
        return {f"{file}::{name}" for file in files for name in self._parts(file).keys() & words}

    def _mentioned(self, file: str, tree: ast.AST) -> set[str]:
        """The files that a file names. Strings of the package itself are prose."""
        used: set[str] = set()
        for mention in paths.mentions(tree, self._known_paths(file)):
            if isinstance(mention, PurePosixPath):
                used |= self._repository.at(str(mention))
            elif not file.startswith("tfhybrid/"):
                used = used.union(*map(self._repository.called, paths.words(mention)))
                used |= self._modules_in(mention, file)
        return used

    def _loaded_by_name(self, file: str, nodes: list[ast.AST]) -> set[str]:
        """The modules that `import_module` is called with."""
        used: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Call) and dotted_name(node.func).endswith("import_module"):
                for text in strings(ast.walk(node)):
                    used |= self._modules_in(text, file)
        return used

    def _modules_in(self, text: str, file: str) -> set[str]:
        names = [*_MODULE.findall(text), *_IMPORT.findall(text)]
        return set().union(*(self._modules.run_by(name, file, whole=True) for name in names))

    def _known_paths(self, file: str) -> dict[str, PurePosixPath]:
        """The paths that names stand for in a file, its own and those of modules it imports."""
        if file not in self._known:
            known = self._known[file] = {"__file__": PurePosixPath(file)}
            for each in self._modules.imports(file):
                for name, path in self._constants(each.bound):
                    known[f"{each.name}.{name}"] = path
                source, _, imported = each.bound.rpartition(".")
                for name, path in self._constants(source):
                    if name == imported:
                        known[each.name] = path
            known |= paths.constants(self._modules.tree(file), known)
        return self._known[file]

    def _constants(self, module: str) -> list[tuple[str, PurePosixPath]]:
        file = self._modules.file(module)
        known = self._known_paths(file) if file else {}
        return [(name, path) for name, path in known.items() if name.isupper()]


def _is_asked_for(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.ClassDef]:
    """Whether a function or class does nothing until a test names it."""
    if isinstance(node, ast.ClassDef):
        return True
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("pytest_"):
        return False
    return not re.search(r"\b(autouse|name)=", " ".join(map(ast.unparse, node.decorator_list)))
